//! Users, access lists and types: the examples of `user`, `acl`, `auth`, `whoami`, `type` and `match`.

use super::stage::{Row, hidden, run, run_to, up};

pub const ROWS: &[Row] = &[
    up(0, "distkv-node run --name n1", "node n1 of network distkv"),
    hidden(0, "rm -f joe.secret"),
    run(0, "distkv-node acl set lamps : xen", &[": allows xen"]),
    run(0, "distkv-node acl set lamps site xen", &["lamps"]),
    run(0, "distkv-node acl set lamps 'site.#' rwcdxen", &["lamps"]),
    run(0, "distkv-node acl set lamps site.secret ''", &["lamps"]),
    run(0, "distkv-node acl show lamps", &["rwcdxen"]),
    run(0, "distkv-node user add joe --acl lamps --new-secret-file joe.secret", &["joe"]),
    run(
        0,
        "distkv-node user password joe --new-secret-file joe.secret",
        &["joe (password) has a new password\n"],
    ),
    run(0, "distkv-node user add robot --method token --role operator", &["robot"]),
    hidden(0, "distkv-node user remove robot"),
    run(0, "distkv-node user add robot --method token --acl '*'", &["robot"]),
    run(0, "distkv-node user token robot --to robot.token", &["is in robot.token"]),
    run(0, "distkv-node user token robot", &["not shown again"]),
    // Nobody has to log in yet.
    run(0, "distkv-node user token robot --disconnect", &["its connections go on"]),
    run(0, "distkv-node user disconnect joe", &["joe (password): its connections go on"]),
    run(0, "distkv-node user list", &["joe", "robot"]),
    run(0, "distkv-node acl explain joe site.lamp", &["site"]),
    run(0, "distkv-node user acl joe lamps", &["joe"]),
    run(0, "distkv-node user acl joe '*'", &["joe"]),
    run(0, "distkv-node whoami", &[]),
    run(0, "distkv-node whoami --user joe --secret-file joe.secret --json", &["{"]),
    hidden(0, "distkv-node user acl joe - && distkv-node user role joe admin"),
    run(0, "distkv-node auth", &["clients need not log in"]),
    run(0, "distkv-node auth on password --grace 10m", &["those without a login go on"]),
    hidden(
        0,
        "distkv-node set site.lamp true && distkv-node auth | grep 'and are served until then'",
    ),
    run(0, "distkv-node auth on password", &["password"]),
    // Nobody may do anything without a login now.
    hidden(0, "! distkv-node get site.lamp"),
    hidden(0, "distkv-node user role joe admin --user joe --secret-file joe.secret"),
    run(0, "distkv-node auth off --user joe --secret-file joe.secret", &[]),
    run(0, "distkv-node acl delete lamps 'site.#'", &[]),
    run(0, "distkv-node acl delete lamps", &[]),
    run(0, "distkv-node user remove joe", &["joe"]),
    run(
        0,
        "distkv-node type set percent --schema '{\"type\": \"number\", \"minimum\": 0, \"maximum\": 100}' \
         --good 0 --good 99.5 --bad -1 --bad '\"a lot\"'",
        &["percent: set"],
    ),
    run(
        0,
        "distkv-node type set percent.whole --schema '{\"type\": \"integer\"}' --good 0 --good 100 --bad 0.5",
        &["percent.whole: set"],
    ),
    run(0, "distkv-node match set 'lamps.+.level' percent", &["set"]),
    hidden(0, "! distkv-node set lamps.hall.level 101"),
    run(0, "distkv-node type", &["percent.whole"]),
    run(0, "distkv-node type show percent", &["maximum"]),
    run_to(0, "distkv-node match set 'sensors.#' number", &[3], &["does not exist"]),
    run(0, "distkv-node match", &["lamps.+.level"]),
    run(0, "distkv-node match delete 'lamps.+.level'", &["deleted"]),
    run(0, "distkv-node type delete percent.whole", &["deleted"]),
];
