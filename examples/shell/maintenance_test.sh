#!/bin/sh
# Does the app survive a reboot of its VM? A test for any CI: a shell, curl and forewarn will do.
#
#   sh maintenance_test.sh                                 with forewarn on the path
#   FOREWARN="python3 forewarn.pyz" sh maintenance_test.sh with the one file
#
# Put the start of your own app where app.sh is started. Ends with 0 if everything was as expected.
set -eu

here=$(dirname "$0")
forewarn=${FOREWARN:-forewarn}
work=$(mktemp -d)
emulator=
app=
vm0=
: >"$work/app"

# Whatever happens: what was started is stopped, by its process id, and nothing is left behind.
stop_all() {
  for pid in $app $emulator; do
    kill "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
  done
  rm -rf "$work"
}
trap stop_all EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

fail() {
  echo "FAILED: $1" >&2
  echo "--- the document" >&2
  [ -z "$vm0" ] || document >&2 || true
  echo "--- the app" >&2
  cat "$work/app" >&2
  echo "--- the emulator" >&2
  cat "$work/log" >&2
  exit 1
}

# eventually WHAT COMMAND...: the command succeeds within 15 seconds, else the test fails.
eventually() {
  what=$1
  shift
  tries=150
  until "$@"; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || fail "$what"
    sleep 0.1
  done
}

document() { curl -fsS -H Metadata:true "$vm0/metadata/scheduledevents?api-version=2020-07-01"; }
document_has() { document | grep -q "$1"; }
app_said() { grep -q "$1" "$work/app"; }

# 1. Start the emulator on free ports. With a seed, every run is the same, dates and ids included.
export FOREWARN_DATA="$work/data" # where this script's commands find it, and no others
$forewarn simulate --json --seed 1 --guest 127.0.0.1:0 --operator 127.0.0.1:0 \
  >"$work/where" 2>"$work/log" &
emulator=$!
until [ -s "$work/where" ]; do # it prints one line once it listens
  kill -0 "$emulator" 2>/dev/null || fail "the emulator did not start"
  sleep 0.1
done
vm0=$(sed -n 's/.*"vm0": "\([^"]*\)".*/\1/p' "$work/where")

# 2. Start the app, and tell it where its VM asks.
sh "$here/app.sh" "$vm0" vm0 >"$work/app" 2>&1 &
app=$!
eventually "the app works" app_said working

# 3. A user restarts the VM. The app has fifteen minutes, and should not need them.
$forewarn scenario run user-reboot >/dev/null
eventually "the app approves" app_said "^approved"
eventually "an approved event starts at once" document_has '"EventStatus":"Started"'
sed -n '/^approved/q;p' "$work/app" | grep -q "^drained" || fail "the app drains, then approves"

# 4. A quarter of an hour later, in no time: the reboot is over and the app works again.
$forewarn clock advance 15m >/dev/null
document_has '"Events":\[\]' || fail "the event is gone"
eventually "the app works again" sh -c "[ \$(grep -c '^working' '$work/app') -eq 2 ]"

echo "passed: drained, approved, rebooted, working again"
