# An adapter that misbehaves: adapter.sh METAROCE OPERATION DEED [NOTICE]
#
# It passes requests on to the reference endpoint and its answers back, until it is asked for OPERATION. Then it does
# DEED. NOTICE is a named pipe that is opened when the deed is done.
metaroce=$1 operation=$2 deed=$3 notice=$4

pipes=$(mktemp -d) || exit 99
mkfifo "$pipes/in" "$pipes/out" || exit 99
"$metaroce" endpoint <"$pipes/in" >"$pipes/out" &
exec 3>"$pipes/in" 4<"$pipes/out"
rm -r "$pipes"

id_of() {
    rest=${1#*'"id":'}
    echo "${rest%%,*}"
}

answer() {
    printf '{"id":%s,"ok":%s}\n' "$(id_of "$line")" "$1"
}

pass_on() {
    printf '%s\n' "$line" >&3
    read -r reply <&4 || exit 98
    printf '%s\n' "$reply"
}

forever() {
    while :; do sleep 1000; done
}

misbehave() {
    [ -z "$notice" ] || : >"$notice"
    case $deed in
    exit) echo "out of cheese" >&2; exit 3 ;;
    signal) echo "about to go" >&2; kill -SEGV $$ ;;
    hang) echo "thinking" >&2; forever ;;
    garbage) echo "what do you mean?" ;;
    no-text) printf '\377\376\n' ;;
    escapes) printf '\033[2J\033]0;owned\007\n' ;;
    escapes-within) printf '{"id":%s,"\\u001b[2J":{}}\n' "$(id_of "$line")" ;;
    escapes-on-stderr) printf '\033[31mred\033[0m' >&2; exit 4 ;;
    flood-of-lines) exec yes ;;
    flood-of-one-line) yes | tr -d '\n' ;;
    flood-of-stderr) deed=none; yes >&2 & pass_on ;;
    flood-of-events)
        event='{"type":"closed","conn":0,"reason":0,"t_ns":0},'
        for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do event=$event$event; done
        answer "{\"events\":[${event%,}]}" ;;
    wrong-id) echo '{"id":999999,"ok":{}}' ;;
    twice) pass_on; printf '%s\n' "$reply" ;;
    closed-output) exec >&-; forever ;;
    closed-input) exec <&-; pass_on; forever ;;
    heir) sleep 1000 & exit 5 ;;
    heir-in-own-session) setsid sleep 1000 & setsid sh -c 'sleep 1000 & sleep 1000' & exit 5 ;;
    mutiny) kill -TERM 0; forever ;;
    stays) deed=none; trap '' TERM INT HUP; stays=yes; pass_on ;;
    refuses) printf '{"id":%s,"error":{"code":"misuse","message":"not today"}}\n' "$(id_of "$line")" ;;
    one-path)
        case $line in *'"paths":'*)
            tail=${line#*'"paths":'}
            line="${line%%'"paths":'*}\"paths\":1,${tail#*,}" ;;
        esac
        pass_on ;;
    foreign-work)
        answer '{"events":[{"type":"completion","conn":0,"stream":0,"wr_id":4242,"kind":"write","status":"IBV_WC_SUCCESS","byte_len":1,"t_ns":0}]}' ;;
    established) answer '{"events":[{"type":"established","conn":0,"paths":4,"streams":1,"t_ns":0}]}' ;;
    *) echo "there is no deed $deed" >&2; exit 97 ;;
    esac
}

while read -r line; do
    case $deed:$line in
    none:*) pass_on ;;
    *'"op":"'"$operation"'"'*) misbehave ;;
    *) pass_on ;;
    esac
done
[ -z "$stays" ] || forever
