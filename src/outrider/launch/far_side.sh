# The far side, in the shell's POSIX form. It takes lines: each prepares something, a dot ends them, and one
# more line turns a subshell into the program. Its names begin with outrider_, so that they hide no variable
# of the program's, whose variables are set in the subshell alone: its PATH cannot lead this script astray.
#
# It stays beside the program for three reasons: to remove the folder, to pass signals on, and to end the
# program once no one is left to talk to it. The last needs a parent that goes away with the connection.
# Under sshd that is so; in a container the parent is outside and cannot be seen, and an agent that does not
# end with its input runs on until the container stops.
outrider_fail() { printf 'outrider: %s\n' "$1" >&2; exit "${2:-@FAILED@}"; }
outrider_take() { IFS= read -r outrider_line || outrider_fail 'the input ended before the program started'; }
outrider_clear() { [ -z "$outrider_folder" ] || rm -rf -- "$outrider_folder"; }
outrider_pass() {
  outrider_caught=1
  if [ -n "${outrider_agent:-$!}" ]; then kill "-$1" "${outrider_agent:-$!}" 2>/dev/null; else exit "$2"; fi
}
outrider_make_folder() {
  outrider_folder=${TMPDIR:-/tmp}/outrider-$1
  mkdir "$outrider_folder" && return
  outrider_folder=; outrider_fail 'no private folder can be made here; set TMPDIR'
}
outrider_write() {
  case $(command -v printf) in
    printf) ;;
    *) outrider_fail 'sh has no printf of its own here, and another program would show what it is given' ;;
  esac
  exec 4>"$outrider_folder/$1"
}
outrider_go_to() {
  CDPATH= cd -- "$1" >/dev/null 2>&1 || outrider_fail "this user has no working folder '$1' on this machine"
}
outrider_find() {
  case $1 in */*) return ;; esac
  command -v "$1" >/dev/null 2>&1 && return
  for outrider_place in @PLACES@; do
    if [ -f "$outrider_place/$1" ] && [ -x "$outrider_place/$1" ]; then PATH=$PATH:$outrider_place; return; fi
  done
  outrider_fail "'$1' was not found on this machine; give its path there as \`cli_path\`" 127
}
outrider_forget() {
  outrider_before=
  set -f
  for outrider_word in $(export -p); do
    outrider_name=${outrider_word%%=*}
    case $outrider_before,$outrider_name in
      *,*[!A-Za-z0-9_]* | *,[0-9]*) ;;
      # To unset what is read-only ends some shells: a subshell tries it first.
      export,?* | -x,?*)
        outrider_is_kept "$outrider_name" || ! (unset "$outrider_name") || unset "$outrider_name" ;;
    esac
    outrider_before=$outrider_word
  done 2>/dev/null
  set +f
}
outrider_is_wanted() {
  kill -0 $$ && kill -0 "$outrider_agent" && { [ -z "$outrider_parent" ] || kill -0 "$outrider_parent"; }
}
outrider_watch() {
  while outrider_is_wanted; do sleep 1; done
  kill -TERM "$outrider_agent"
  for outrider_second in 1 2 3 4 5; do kill -0 "$outrider_agent" || break; sleep 1; done
  kill -0 "$outrider_agent" && kill -KILL "$outrider_agent"
  outrider_clear
}
outrider_home=${HOME-} outrider_umask=$(umask)
outrider_folder= outrider_agent= outrider_caught= outrider_again=
# A signal to this number means others than the parent; a parent that cannot be asked seems to be gone.
case $PPID in 0 | 1) outrider_parent= ;; *) outrider_parent=$PPID ;; esac
kill -0 "$outrider_parent" 2>/dev/null || outrider_parent=
trap outrider_clear EXIT
trap 'outrider_pass HUP 129' HUP
# Programs in the background are started with INT ignored.
trap 'outrider_pass TERM 130' INT
trap 'outrider_pass TERM 143' TERM
umask 077
while outrider_take; do
  case $outrider_line in .) break ;; esac
  eval "$outrider_line" || outrider_fail 'what the program needs cannot be prepared here'
done
outrider_take
umask "$outrider_umask"
exec 3<&0
( eval "$outrider_line"; outrider_find "$1"; exec "$@" ) <&3 3<&- &
outrider_agent=$!
# Only the program holds what it reads and writes, so that its ends are seen when it closes them.
exec 3<&- </dev/null >/dev/null 2>&1
( trap - EXIT; outrider_watch ) &
while :; do
  outrider_caught=
  wait "$outrider_agent"
  outrider_status=$?
  # A signal ends the wait early, or comes just when it is over: ask again, and 127 means that it was over.
  if [ -n "$outrider_again" ] && [ "$outrider_status" -eq 127 ]; then
    outrider_status=$outrider_again; break
  fi
  [ -n "$outrider_caught" ] || break
  outrider_again=$outrider_status
done
trap '' HUP INT TERM
kill "$!" 2>/dev/null
exit "$outrider_status"
