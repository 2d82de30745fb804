//! Clients that log in by a certificate.

use std::fs;
use std::sync::Arc;

use distkv::client::{Access, ClientError, Connection, Fields, HostPort, Options};
use distkv::engine::Input;
use distkv::rt;
use distkv::server::{ServerConfig, TlsSettings};
use distkv_tls::server::ClientRoots;
use distkv_tls::ticket::ClientCertificate;
use distkv_tls::{Ca, Clock, ServerTls, Ticket};

use super::sides::{elsewhere, heal, serve_with};
use super::{admin, limited, secured, secured_config};
use crate::harness::{Node, Value};

fn now() -> u64 {
    rt::wall_clock_ms() / 1_000
}

/// The settings of a secured node that takes certificates of this CA.
fn config(ca: &Ca) -> ServerConfig {
    let identity = ca.issue_node(&["127.0.0.1"], now()).unwrap();
    let clients = ClientRoots::none().with_ca(ca).unwrap();
    let tls = Arc::new(ServerTls::new(&identity, &clients, Clock::new(now)).unwrap());
    let tls = Some(TlsSettings { tls, is_plain_at_home: true, plain: Vec::new() });
    ServerConfig { tls, ..secured_config() }
}

/// A connection with joe's certificate, which has sent nothing yet.
fn joe(ca: &Ca, node: &Node) -> Connection {
    connect(ca, node, now()).unwrap()
}

/// The same, of a certificate of a day from then on.
fn connect(ca: &Ca, node: &Node, from: u64) -> Result<Connection, ClientError> {
    connect_by(Access::of_ticket(&ticket(ca, node, from)).unwrap(), node)
}

fn ticket(ca: &Ca, node: &Node, from: u64) -> Ticket {
    Ticket {
        addresses: vec![HostPort::from(node.address()).to_string()],
        network: String::from("test"),
        login: None,
        ca: Some(ca.hash()),
        certificate: Some(ClientCertificate::from(&ca.issue_user("joe", 1, from).unwrap())),
    }
}

fn connect_by(access: Access, node: &Node) -> Result<Connection, ClientError> {
    let to = HostPort::from(node.address());
    rt::block_on(Connection::connect(&to, Options { access, ..Options::default() }))
}

/// What a request of this client is answered.
fn ask(client: &Connection) -> Result<(), ClientError> {
    rt::block_on(client.request("get_tock", &Fields::new())).map(drop)
}

/// The word for programs in the node's error, or else how the connection has ended.
fn code(error: &ClientError) -> String {
    error.server().and_then(|error| error.code.clone()).unwrap_or_else(|| error.to_string())
}

#[test]
fn a_certificates_connection_ends_if_its_user_was_made_again_meanwhile() {
    let node = secured();
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let ca = Ca::make("plant", now()).unwrap();
    let cut_off = serve_with(elsewhere(&node), config(&ca));
    let thief = joe(&ca, &cut_off);
    ask(&thief).unwrap();
    admin.ok(map! {"action": "auth_delete", "typ": "password", "ident": "joe"});
    admin.ok(limited("joe", "new12345", "*"));
    heal(&node.hub, &cut_off.hub);
    let ended = rt::block_on(rt::timeout(crate::harness::PATIENCE, thief.closed()));
    let ended = ended.expect("it ends").to_string();
    assert!(ended.contains("was removed"), "{ended}");
    // A certificate says a name, and is good for who has it now.
    ask(&joe(&ca, &cut_off)).unwrap();
}

#[test]
fn a_certificate_logs_in_again_after_somebody_has_ended_its_users_connections() {
    let ca = Ca::make("plant", now()).unwrap();
    let node = Node::found_with("n1", config(&ca));
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    for secret in [None, Some("new12345")] {
        let client = joe(&ca, &node);
        ask(&client).unwrap();
        let secret = secret.map_or(Value::Nil, Value::from);
        admin.ok(map! {
            "action": "auth_disconnect", "typ": "password", "ident": "joe", "secret": secret,
        });
        let ended = rt::block_on(rt::timeout(crate::harness::PATIENCE, client.closed()));
        let ended = ended.expect("it ends").to_string();
        assert!(ended.contains("somebody has ended the connections of the user"), "{ended}");
    }
    ask(&joe(&ca, &node)).unwrap();
}

/// What it would set would log in its user when the certificate does not any more.
#[test]
fn a_connection_by_a_certificate_sets_no_secret_until_it_has_shown_the_present_one() {
    let ca = Ca::make("plant", now()).unwrap();
    let node = Node::found_with("n1", config(&ca));
    let mut admin = admin(&node);
    admin.ok(limited("joe", "test123", "*"));
    let client = joe(&ca, &node);
    let asks = |action: &str, secret: Option<&str>| {
        let mut fields = Fields::new();
        fields.str("typ", "password").str("ident", "joe");
        if let Some(secret) = secret {
            fields.str("secret", secret);
        }
        rt::block_on(client.request(action, &fields)).map(drop)
    };
    for action in ["auth_set", "auth_disconnect"] {
        let refused = asks(action, Some("stolen12")).unwrap_err();
        assert_eq!(code(&refused), "denied");
        let text = refused.to_string();
        assert!(
            text.contains("by a certificate") && text.contains("nothing was changed"),
            "{text}"
        );
    }
    // The client is let go on, and nothing has changed: the present secret opens the way.
    ask(&client).unwrap();
    let mut login = Fields::new();
    login.str("typ", "password").str("ident", "joe").str("secret", "test123");
    let stream = rt::block_on(async {
        let mut stream = client.stream("auth", &login).await?;
        while stream.next().await?.is_some() {}
        Ok::<_, ClientError>(())
    });
    stream.unwrap();
    asks("auth_set", Some("new12345")).unwrap();
    // Where it sets nothing, a certificate is enough.
    let other = joe(&ca, &node);
    let mut fields = Fields::new();
    fields.str("typ", "password").str("ident", "joe");
    rt::block_on(other.request("auth_disconnect", &fields)).unwrap();
}

#[test]
fn where_no_user_can_log_in_at_the_moment_a_certificate_is_told_so_and_logs_in_later() {
    let ca = Ca::make("plant", now()).unwrap();
    let config = || ServerConfig { isolated_logins_ms: Some(1_000), ..config(&ca) };
    let refused = |client: &Connection| code(&ask(client).unwrap_err());
    let node = Node::found_with("n1", config());
    admin(&node).ok(limited("joe", "test123", "*"));
    *node.info.isolated_ms.lock().unwrap() = Some(1_000);
    let patient = joe(&ca, &node);
    assert_eq!(refused(&joe(&ca, &node)), "not_ready");
    *node.info.isolated_ms.lock().unwrap() = None;
    ask(&patient).unwrap();
    // What users there are, a node knows when it has caught up.
    let waiting = Node::waiting("n2", config());
    let patient = joe(&ca, &waiting);
    assert_eq!(refused(&joe(&ca, &waiting)), "not_ready");
    heal(&node.hub, &waiting.hub);
    waiting.hub.handle(Input::Found, 0);
    ask(&patient).unwrap();
    // Whom no user is called is refused for good.
    let nobody = serve_with(elsewhere(&secured()), config());
    assert_eq!(refused(&joe(&ca, &nobody)), "auth_required");
}

/// A day, and a certificate of one that is good for so many seconds from now on.
const DAY: u64 = 86_400;

#[test]
fn a_connection_ends_when_the_certificate_does_that_it_was_made_by() {
    let ca = Ca::make("plant", now()).unwrap();
    let node = Node::found_with("n1", config(&ca));
    admin(&node).ok(limited("joe", "test123", "*"));
    // Time enough for two connections on a slow machine.
    let ends_at = now() + 4;
    // One that is idle, and one that goes on asking. Who has one that is good for longer, stays.
    let [idle, busy] = [(), ()].map(|()| connect(&ca, &node, ends_at - DAY).unwrap());
    let other = joe(&ca, &node);
    ask(&other).unwrap();
    ask(&idle).unwrap();
    let mut answers = 0;
    let refused = loop {
        assert!(now() < ends_at + 5, "it goes on");
        match ask(&busy) {
            Ok(()) => answers += 1,
            Err(error) => break error,
        }
    };
    assert!(answers > 0 && now() > ends_at, "{answers} answers");
    let expired = "the certificate of the user \"joe\" has expired";
    assert!(refused.to_string().contains(expired), "{refused}");
    let ended = rt::block_on(rt::timeout(crate::harness::PATIENCE, idle.closed()));
    let ended = ended.expect("it ends").to_string();
    assert!(ended.contains(expired), "{ended}");
    ask(&other).unwrap();
    // And no other one is made by it.
    assert!(connect(&ca, &node, ends_at - DAY).and_then(|late| ask(&late)).is_err());
}

#[test]
fn a_certificate_that_is_replaced_in_its_tickets_file_is_taken_for_new_connections() {
    let ca = Ca::make("plant", now()).unwrap();
    let node = Node::found_with("n1", config(&ca));
    admin(&node).ok(limited("joe", "test123", "*"));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ticket");
    let put = |from: u64| {
        let ticket = ticket(&ca, &node, from);
        // As a whole, so that it differs however coarse the clock of the file system is.
        let beside = folder.path().join("new");
        fs::write(&beside, ticket.to_text().unwrap()).unwrap();
        fs::rename(&beside, &file).unwrap();
        ticket
    };
    let access = Access::of_ticket_file(&put(now()), &file).unwrap();
    let comes =
        || connect_by(access.clone(), &node).and_then(|client| ask(&client).map(|()| client));
    let first = comes().unwrap();
    put(now() - 2 * DAY);
    let refused = comes().unwrap_err().to_string();
    assert!(refused.contains("refuses the client's certificate"), "{refused}");
    // What is open stays.
    ask(&first).unwrap();
    put(now());
    comes().unwrap();
}
