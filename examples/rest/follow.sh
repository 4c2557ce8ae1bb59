#!/bin/bash
# Runs a directory of code as a job with curl alone, and follows what it prints until it has ended.
#   URL=https://... CA=ca.crt TOKEN=... bash follow.sh DIRECTORY
# A broken connection is taken up where it broke: nothing comes twice, nothing is lost.
set -euo pipefail
rest() { curl -sS --fail-with-body --cacert "$CA" -H "Authorization: Bearer $TOKEN" "$@"; }

JOB=$(tar -C "$1" -cz . | rest -X POST "$URL/api/v1/jobs/from-archive?framework=pytorch&num_nodes=2" \
  -H 'Content-Type: application/gzip' -H "Idempotency-Key: $RANDOM-$$" --data-binary @- |
  sed -n 's/.*"name":"\([^"]*\)".*/\1/p')
last= event=
while [ "$event" != end ]; do
  while IFS= read -r line; do
    case $line in
      id:*) last=${line#id: } ;;
      event:*) event=${line#event: } ;;
      data:*) echo "$event ${line#data: }" ;;
    esac
  done < <(rest -N -H "Last-Event-ID: $last" "$URL/api/v1/jobs/$JOB/logs/stream")
done
