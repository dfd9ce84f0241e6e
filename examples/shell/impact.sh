#!/bin/sh
# Has an app feel what happens to its VM. The emulator runs it, with four more words:
#
#   export APP='sh app.sh http://127.0.0.1:8254' APP_PID=app.pid
#   forewarn simulate --on-impact 'sh impact.sh'
#
#   sh impact.sh freeze|thaw|kill|start VM TYPE EVENTID
#
# APP is the command that starts the app, APP_PID a file with its process id; `start` writes it. The
# VM is taken to be the only one: with several, keep a file for each, by its name.
set -eu

pid=$(cat "${APP_PID:-app.pid}" 2>/dev/null) || pid=
case $1 in
  freeze) kill -STOP "$pid" ;;
  thaw) kill -CONT "$pid" ;;
  kill) kill -KILL "$pid" ;;
  start)
    # In the background and with its own output, or the emulator would wait for it.
    $APP >app.log 2>&1 </dev/null &
    echo $! >"${APP_PID:-app.pid}"
    ;;
esac
