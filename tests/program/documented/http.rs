//! The commands of docs/http-api.md.

use super::stage::{Row, down, run, run_to, up};

pub const ROWS: &[Row] = &[
    up(
        0,
        "distkv-node run --name n1 --data-dir data --http --http-write --http-token-file http.token",
        "HTTP at 127.0.0.1:27585",
    ),
    run(0, "curl -s http://127.0.0.1:27585/v1/", &["GET /v1/kv/PATH?watch"]),
    run(
        0,
        "curl -s -X PUT -H \"Authorization: Bearer $(cat http.token)\" -d '{\"on\": true}' http://127.0.0.1:27585/v1/kv/site/lamp",
        &["\"changed\":true", "\"etag\":"],
    ),
    run(0, "curl -s http://127.0.0.1:27585/v1/kv/site/lamp", &["{\"on\":true}"]),
    run(
        0,
        "curl -s -H 'Accept: application/msgpack' http://127.0.0.1:27585/v1/kv/site/lamp",
        &["on"],
    ),
    run(
        0,
        "curl -s -X PUT -H \"Authorization: Bearer $(cat http.token)\" -H 'If-None-Match: *' -d '1' http://127.0.0.1:27585/v1/kv/site/lamp",
        &["\"code\":\"already_exists\"", "\"entry\":{\"value\":{\"on\":true}"],
    ),
    run(
        0,
        "curl -s -X PUT -H \"Authorization: Bearer $(cat http.token)\" -H 'If-Match: *' -d '1' 'http://127.0.0.1:27585/v1/kv/site/lamp?copies=0'",
        &["\"changed\":true"],
    ),
    run(
        0,
        "curl -s -X PUT -H \"Authorization: Bearer $(cat http.token)\" -H 'Distkv-Wid: 00112233445566778899aabbccddeeff' -d '\"dim\"' http://127.0.0.1:27585/v1/kv/site/fan",
        &["\"changed\":true"],
    ),
    run(
        0,
        "curl -s 'http://127.0.0.1:27585/v1/kv/site?children'",
        &["{\"items\":[{\"name\":\"fan\",\"value\":\"dim\"", "\"more\":false}],\"next\":null}"],
    ),
    run(
        0,
        "curl -s 'http://127.0.0.1:27585/v1/kv/?children&limit=2&after=a'",
        &["{\"items\":[{\"name\":\"site\",\"more\":true}],\"next\":null}"],
    ),
    run(
        0,
        "curl -s 'http://127.0.0.1:27585/v1/kv/?tree&depth=2'",
        &["{\"path\":\"site.fan\",\"value\":\"dim\",", "{\"path\":\"site.lamp\",\"value\":1,"],
    ),
    // It would go on.
    run_to(
        0,
        "curl -s -N --max-time 5 'http://127.0.0.1:27585/v1/kv/site?watch&fetch&conflicts'",
        &[28],
        &["event: entry\ndata: {\"path\":\"site.fan\"", "event: uptodate\n"],
    ),
    run(0, "curl -s http://127.0.0.1:27585/v1/status", &["\"name\":\"n1\"", "\"ready\":true"]),
    run(0, "curl -s http://127.0.0.1:27585/v1/members", &["\"state\":\"self\""]),
    run(0, "curl -s 'http://127.0.0.1:27585/v1/conflicts?since=0&limit=10&path=site'", &[]),
    run(0, "curl -s 'http://127.0.0.1:27585/v1/shards?detail'", &["\"shard\":"]),
    run(
        0,
        "curl -s 'http://127.0.0.1:27585/v1/history?path=site.lamp&limit=10'",
        &["{\"items\":[{\"value\":{\"on\":true}", "\"cut\":false"],
    ),
    run(0, "curl -s http://127.0.0.1:27585/v1/openapi.json", &["\"openapi\": \"3.0.3\""]),
    run(
        0,
        "curl -s -X DELETE -H \"Authorization: Bearer $(cat http.token)\" http://127.0.0.1:27585/v1/kv/site/fan",
        &["\"changed\":true"],
    ),
    run(
        0,
        "curl -s -X DELETE -H \"Authorization: Bearer $(cat http.token)\" 'http://127.0.0.1:27585/v1/kv/site?tree'",
        &["{\"changed\":1}"],
    ),
    down(0),
];
