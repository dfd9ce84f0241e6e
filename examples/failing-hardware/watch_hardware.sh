#!/bin/sh
# Tells Forewarn that a hypervisor is expected to fail, before it does: its VMs are warned and moved.
#
#   sh watch_hardware.sh HOST      HOST is its name in `forewarn host list`; run it from a timer, as root
#
# It asks the disks (smartctl, of smartmontools) and the memory controllers (EDAC, in /sys). Put whatever
# else predicts a failure where these are: one line in `why` is enough. It needs `forewarn` with
# FOREWARN_URL and FOREWARN_TOKEN, or a service on the same machine. Ends with 0 also if all is well.
set -eu

host=$1
edac=${EDAC:-/sys/devices/system/edac/mc}
correctable_max=${CORRECTABLE_MAX:-1000} # errors that were corrected since the last boot
why=

# Bit 3 of what smartctl ends with: the disk itself says that it is failing.
if command -v smartctl > /dev/null; then
  for disk in $(smartctl --scan | cut -d' ' -f1); do
    ended=0
    smartctl --quietmode=silent --health "$disk" || ended=$?
    [ $((ended & 8)) -eq 0 ] || why="$why; $disk says that it is failing"
  done
fi

# Each memory controller counts errors that it could not correct, and those that it could.
for controller in "$edac"/mc*; do
  [ -r "$controller/ue_count" ] || continue
  uncorrected=$(cat "$controller/ue_count")
  corrected=$(cat "$controller/ce_count")
  [ "$uncorrected" -eq 0 ] || why="$why; $controller has $uncorrected uncorrected errors"
  [ "$corrected" -le "$correctable_max" ] || why="$why; $controller has $corrected corrected errors"
done

[ -n "$why" ] || exit 0
health=$(forewarn host show "$host" --json | sed -n 's/^  "health": "\([a-z]*\)".*/\1/p')
[ "$health" = ok ] || exit 0 # it was said before; `forewarn host repair` says that it is well again
echo "host $host is expected to fail${why}"
forewarn host degrade "$host"
