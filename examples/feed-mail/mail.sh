#!/bin/sh
# Mails what people want to know: announced, starting, done, failed, held, silent agents, overrides.
#
#     FOREWARN_URL=... FOREWARN_TOKEN=... mail.sh PLACE ADDRESS
#
# PLACE is a file that keeps how far it has come; a line that was printed just before a kill may be
# mailed twice. `sendmail` is that of any mail server (Debian: msmtp-mta); SENDMAIL names another one.
set -eu
place=$1 address=$2
forewarn feed --follow --text --cursor "$place" | while IFS= read -r line; do
    printf 'To: %s\nSubject: [forewarn] %.60s\nContent-Type: text/plain; charset=utf-8\n\n%s\n' \
        "$address" "$line" "$line" | "${SENDMAIL:-sendmail}" -t
done
