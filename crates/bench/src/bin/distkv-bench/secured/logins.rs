//! How many logins a node takes in a second, each on a connection of its own, one after the other: of users whose
//! secret it has not seen yet, and of those that are in its cache; and the CPU that they cost.

use distkv_client::login::Login;
use distkv_client::{Access, Fields};
use distkv_command::error::CliError;
use distkv_runtime as rt;

use super::SecuredArgs;
use super::nodes::{Guard, Nodes};
use super::rows::{Row, Way};
use crate::compare::lab::{Cores, Server};

/// Users that log in for the first time, in each pair.
const USERS: u32 = 16;

/// Without the cache, and with it; then a token and the cluster's key, which need none.
pub(super) fn rows(args: &SecuredArgs, nodes: &Nodes) -> Result<Vec<Row>, CliError> {
    let store = nodes.store(None);
    let servers = nodes.start(&store, "logins", 1, Guard::Secured, Cores::One)?;
    let server = servers.first().ok_or_else(|| store.failed("there is none"))?;
    let admin = nodes.admin()?;
    let by_key = Nodes::connect(server, &admin)?;
    let add = |method: &str, name: &str| -> Result<Option<String>, CliError> {
        let mut fields = Fields::new();
        fields.str("typ", method).str("kind", "user").str("ident", name).nil("chain");
        fields.str("role", "user");
        if method == "password" {
            fields.str("secret", &secret_of(name));
        }
        let reply = rt::block_on(by_key.request("auth_set", &fields))?;
        Ok(reply.str("token").map(str::to_owned))
    };
    let token = add("token", "program")?.ok_or_else(|| store.failed("it makes no token"))?;
    let token = Access::default().log_in(Login::user(Some("token"), "program", Some(&token)));
    let mut per_second = Row::new("logins by password, first and again (cached): per second", 0);
    let mut cpu = Row::new("logins by password, first and again: CPU ms of the node each", 2);
    let mut others = Row::new("logins by token, and by the cluster's key in TLS: per second", 0);
    let mut others_cpu = Row::new("logins by token, and by key in TLS: CPU ms each", 2);
    for pair in 0..args.pairs {
        let users: Vec<String> = (0..USERS).map(|number| format!("u{pair}-{number}")).collect();
        for user in &users {
            add("password", user)?;
        }
        let access = |user: &String| {
            Access::default().log_in(Login::user(Some("password"), user, Some(&secret_of(user))))
        };
        let all: Vec<Access> = users.iter().map(access).collect();
        let first = log_in(server, &all, Some(USERS), args)?;
        let again = log_in(server, &all, None, args)?;
        let by_token = log_in(server, std::slice::from_ref(&token), None, args)?;
        let by_key = log_in(server, std::slice::from_ref(&admin), None, args)?;
        for (way, rate) in [(Way::Without, first), (Way::With, again)] {
            per_second.add(way, rate.per_second);
            cpu.add(way, rate.cpu_ms);
        }
        for (way, rate) in [(Way::Without, by_token), (Way::With, by_key)] {
            others.add(way, rate.per_second);
            others_cpu.add(way, rate.cpu_ms);
        }
    }
    Ok(vec![per_second, cpu, others, others_cpu])
}

fn secret_of(user: &str) -> String {
    format!("the secret of {user}")
}

struct Rate {
    per_second: f64,
    cpu_ms: f64,
}

/// Logs in as each of these in turn: so often, or for as long as a measurement takes.
fn log_in(
    server: &Server,
    all: &[Access],
    count: Option<u32>,
    args: &SecuredArgs,
) -> Result<Rate, CliError> {
    let (before, began) = (server.process().usage(), rt::now_ns());
    let end = began + args.duration.as_nanos() as u64;
    let mut done = 0_u32;
    for access in all.iter().cycle() {
        if count.map_or(rt::now_ns() >= end, |count| done >= count) {
            break;
        }
        drop(Nodes::connect(server, access)?);
        done += 1;
    }
    let (after, took) = (server.process().usage(), rt::now_ns() - began);
    let cpu_s = before.zip(after).map_or(f64::NAN, |(before, after)| after.cpu_s - before.cpu_s);
    let done = f64::from(done.max(1));
    Ok(Rate { per_second: done / (took as f64 / 1e9), cpu_ms: cpu_s * 1e3 / done })
}
