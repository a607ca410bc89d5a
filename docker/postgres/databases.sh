#!/bin/bash
# Run once, when the server's data are made: one database for the shop, whose tables are ingested, and one for the journal.
set -euo pipefail

for database in shop journal; do
    createdb --username="$POSTGRES_USER" "$database"
done
psql --username="$POSTGRES_USER" --dbname=shop --set=ON_ERROR_STOP=1 --file=/shop.sql
