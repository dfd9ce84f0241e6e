#!/bin/sh
# A small app for a VM: it works, and before its VM is touched it stops, says so, and goes ahead.
#
#   sh app.sh URL [VM]     URL is where the VM asks, http://169.254.169.254 in a cloud
#
# It reads with grep what a real app would read with a JSON parser: one event at a time is enough
# to show what the emulator does. It prints one line for each thing it does.
set -eu

url="${1:-http://169.254.169.254}/metadata/scheduledevents?api-version=2020-07-01"
vm=${2:-vm0}
working=yes
echo "working"

while :; do
  # Poll every second, and go on polling when an answer fails: faults pass.
  document=$(curl -fsS --max-time 10 -H Metadata:true "$url" 2>/dev/null) || document=
  event=$(printf %s "$document" | grep -o "\"EventId\":[^]]*\"$vm\"[^}]*" | head -n 1) || event=
  case $event in
    *'"EventStatus":"Scheduled"'*)
      if [ "$working" = yes ]; then
        working=no
        echo "drained"
      fi
      id=$(printf %s "$event" | cut -d'"' -f4)
      if curl -fsS --max-time 10 -H Metadata:true \
        --data "{\"StartRequests\":[{\"EventId\":\"$id\"}]}" "$url" 2>/dev/null; then
        echo "approved $id"
      fi
      ;;
    '')
      if [ "$working" = no ] && [ -n "$document" ]; then
        working=yes
        echo "working"
      fi
      ;;
  esac
  sleep 1
done
