# The agent of `agent.py` for turns that ask nothing, in a language that loads in a millisecond: with Python, which
# takes twenty, the wall time of many sessions would be that of their programs. Sourced with `init`, `turn`, `result`
# and `answer` set: lines of JSON, the first and the third without their last bracket.

# Finds the value of a field in a line, however the line is spaced.
find_value() {
    found=${line#*"\"$1\":"}
    found=${found#*\"}
    found=${found%%\"*}
}

while IFS= read -r line; do
    case $line in
    *'"control_request"'*)
        find_value request_id
        printf '{"type":"control_response","response":{"subtype":"success","request_id":"%s","response":%s}}\n' \
            "$found" "$answer"
        ;;
    *'"user"'*)
        named=
        case $line in
        *'"uuid":'*)
            find_value uuid
            named=", \"user_message_uuids\": [\"$found\"]"
            ;;
        esac
        printf '%s%s}\n%s%s%s}\n' "$init" "$named" "$turn" "$result" "$named"
        ;;
    esac
done
