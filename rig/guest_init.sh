#!/bin/sh
# The only program of a guest: asks the endpoint each second and says on the console what it sees,
# one line each: `fw KIND key=value ...`. Its orders are on the kernel's command line (fw.*).
export PATH=/bin
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /etc/acpi/PWRF
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec < /dev/console > /dev/console 2>&1

order() { sed -n "s/.*\<fw\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }
uptime() { cut -d' ' -f1 /proc/uptime; }
say() { echo "fw $1 name=$name boot=$boot up=$(uptime) $2"; }

name=$(order name)
approve=$(order approve)
boot=$(cut -c1-8 /proc/sys/kernel/random/boot_id)
endpoint=http://169.254.169.254/metadata/scheduledevents?api-version=2020-07-01

for module in $(cat /modules/order); do
  case "$(order acpi)-$module" in
    ignore-button.ko | ignore-evdev.ko) ;;
    *) insmod /modules/$module || say broken "why=insmod module=$module" ;;
  esac
done
say boot "acpi=$(order acpi) approve=$approve"

ip link set lo up
ip link set eth0 up
ip address add "$(order address)/24" dev eth0
ip route add 169.254.169.254 dev eth0

if [ "$(order acpi)" != ignore ]; then
  cat > /etc/acpi/PWRF/00000080 <<-END
	#!/bin/sh
	echo "fw button name=$name boot=$boot up=\$(cut -d' ' -f1 /proc/uptime) " > /dev/console
	exec poweroff -f
	END
  chmod +x /etc/acpi/PWRF/00000080
  acpid -d > /dev/null 2>&1 &
fi

if [ "$(order agent)" = yes ]; then
  # Its steps say what they are told; its log comes out line by line. Root alone may write to all of it.
  cat > /bin/agent-step <<-END
	#!/bin/sh
	echo "fw step name=$name boot=$boot up=\$(cut -d' ' -f1 /proc/uptime) what=\$1 event=\$FOREWARN_EVENT_ID type=\$FOREWARN_EVENT_TYPE" > /dev/console
	END
  chmod +x /bin/agent-step
  mkdir -p /etc/forewarn-guest /var/lib/forewarn-guest
  cat > /etc/forewarn-guest/agent.toml <<-END
	[agent]
	folder = "/var/lib/forewarn-guest"
	[[rule]]
	types = ["Freeze", "Reboot", "Redeploy", "Terminate"]
	[[rule.prepare]]
	run = ["/bin/agent-step", "prepare"]
	[[rule.recover]]
	run = ["/bin/agent-step", "recover"]
	END
  PYTHONPATH=/usr/lib/forewarn-guest /usr/bin/python3 -m forewarn_guest run \
    --config /etc/forewarn-guest/agent.toml 2>&1 \
    | while read -r line; do echo "agent: $line"; done &
fi

cat > /tmp/read.awk <<'END'
{
  incarnation = "-"
  if (match($0, /"DocumentIncarnation":[0-9]+/))
    incarnation = substr($0, RSTART + 22, RLENGTH - 22)
  count = split($0, parts, /\{"EventId":"/)
  events = ""
  for (i = 2; i <= count; i++) {
    id = substr(parts[i], 1, index(parts[i], "\"") - 1)
    phase = type = "-"
    if (match(parts[i], /"EventStatus":"[A-Za-z]*/)) phase = substr(parts[i], RSTART + 15, RLENGTH - 15)
    if (match(parts[i], /"EventType":"[A-Za-z]*/)) type = substr(parts[i], RSTART + 13, RLENGTH - 13)
    events = events (i > 2 ? "," : "") id ":" type ":" phase
  }
  print incarnation " " (events == "" ? "-" : events)
}
END

given=" "
approve_all() {
  for event in $(echo "$1" | tr , ' '); do
    id=${event%%:*}
    case "$event" in *:Scheduled) ;; *) continue ;; esac
    case "$given" in *" $id "*) continue ;; esac
    # Before it is sent: what it allows may come before there is time to say that it was taken.
    say consent "event=$id"
    if timeout 8 wget -q -O /dev/null --header 'Metadata: true' \
      --post-data "{\"StartRequests\":[{\"EventId\":\"$id\"}]}" "$endpoint" 2> /tmp/why; then
      given="$given$id "
      say approve "status=200 event=$id"
    else
      say approve "status=$(status_of /tmp/why) event=$id"
    fi
  done
}
status_of() {
  found=$(sed -n 's/.*HTTP\/1\.[01] \([0-9]*\).*/\1/p' "$1")
  echo "${found:-none}"
}

# `wget -T` of Debian's static busybox (1.35) crashes; `timeout` does not.
while :; do
  if timeout 4 wget -q -S -O /tmp/document --header 'Metadata: true' "$endpoint" 2> /tmp/why; then
    set -- $(awk -f /tmp/read.awk /tmp/document)
    date=$(sed -n 's/^ *[Dd]ate: *//p' /tmp/why | tr -d '\r' | tr ' ' '_')
    say poll "status=200 incarnation=$1 events=$2 date=$date"
    [ "$approve" = yes ] && [ "$2" != - ] && approve_all "$2"
  else
    say poll "status=$(status_of /tmp/why) incarnation=- events=- why=$(tr ' \n' '_' < /tmp/why)"
  fi
  sleep 1
done
