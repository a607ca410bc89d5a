"""Everything under `<target>/_gobblin`: staging, claims and manifests."""
