#!/bin/sh
# Make the buckets that BUCKETS names, and serve them. Keys come from ROOT_ACCESS_KEY and ROOT_SECRET_KEY.
set -eu

mkdir -p /data/accounts /data/buckets
for bucket in ${BUCKETS:-}; do
    mkdir -p "/data/buckets/$bucket"
done

exec versitygw --quiet --keep-alive --region us-east-1 --port :7070 --iam-dir /data/accounts posix /data/buckets
