//! A secret, and a node of another machine that is not reached by TLS: it is sent only where the client was told that it may
//! be. What answers here is no node, and keeps every byte that comes.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use distkv::client::splitter::Splitter;
use distkv::client::{
    Access, CallError, Client, ClientConfig, ClientError, Fields, Login, Message, Path, Ticket,
};
use distkv::testing::block_on;

use super::Keys;
use crate::cli::command::{Done, run};
use crate::hosts::{Hosts, inside_own_network};

/// An address of the test's that is not of the loopback network. It stands for another machine.
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 78, 0, 1));
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const SECRET: &str = "hunter2-hunter2-hunter2-hunter2-";

/// Whoever listens there. Every secret is right.
struct Listener {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl Listener {
    /// `auth`: what it greets with, in MessagePack.
    fn start(at: IpAddr, auth: &'static [u8]) -> Listener {
        let listener = TcpListener::bind((at, 0)).unwrap();
        let (address, heard) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<u8>>>::default());
        let kept = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let kept = Arc::clone(&kept);
                // What goes wrong here, the client sees as a lost connection.
                thread::spawn(move || serve(stream, auth, &kept));
            }
        });
        Listener { address, heard }
    }

    /// All that it was told since it was asked last.
    fn heard(&self) -> Vec<u8> {
        std::mem::take(&mut self.heard.lock().unwrap())
    }

    /// The logins that it was asked for, and whether the secret stands in anything that was said.
    fn logins(&self) -> (Vec<Message>, bool) {
        let heard = self.heard();
        let mut splitter = Splitter::new();
        splitter.push(&heard);
        let mut logins = Vec::new();
        while let Some(said) = splitter.next_value().unwrap() {
            let said = Message::new(said).unwrap();
            if said.str("action") == Some("auth") {
                logins.push(said);
            }
        }
        (logins, has(&heard, SECRET))
    }

    /// Nothing of a login has come, not even who it is.
    fn has_learned_nothing(&self) {
        let heard = self.heard();
        for word in ["joe", "auth", SECRET] {
            assert!(!has(&heard, word), "{word}: {}", String::from_utf8_lossy(&heard));
        }
    }

    fn has_got_the_secret(&self) {
        let (logins, has_secret) = self.logins();
        assert!(!logins.is_empty() && has_secret, "{logins:?}");
    }
}

fn has(heard: &[u8], word: &str) -> bool {
    heard.windows(word.len()).any(|part| part == word.as_bytes())
}

fn serve(mut stream: TcpStream, auth: &[u8], kept: &Mutex<Vec<u8>>) -> std::io::Result<()> {
    let mut greeting = Fields::new();
    greeting.u64("seq", 0).raw("version", b"\x93\x00\x41\x00").str("node", "whoever");
    stream.write_all(&greeting.u64("tick", 1).u64("tock", 2).raw("auth", auth).encode())?;
    let (mut splitter, mut chunk) = (Splitter::new(), [0; 4 << 10]);
    loop {
        while let Some(asked) = splitter.next_value().unwrap() {
            // As nodes answer what is no message, such as TLS.
            let Ok(asked) = Message::new(asked) else {
                return stream.write_all(&Fields::new().str("error", "a map is wanted").encode());
            };
            // Settings have none.
            let Some(seq @ 1..) = asked.u64("seq") else { continue };
            let mut reply = Fields::new();
            reply.u64("seq", seq);
            let reply = match asked.str("action") {
                Some("auth") => {
                    let [mut start, mut end] = [reply.clone(), reply];
                    [start.str("state", "start").encode(), end.str("state", "end").encode()]
                        .concat()
                }
                Some("get_value") => reply.raw("value", &[7]).encode(),
                _ => reply.str("error", "no such action").str("code", "unknown_action").encode(),
            };
            stream.write_all(&reply)?;
        }
        match stream.read(&mut chunk)? {
            0 => return Ok(()),
            count => {
                kept.lock().unwrap().extend_from_slice(&chunk[..count]);
                splitter.push(&chunk[..count]);
            }
        }
    }
}

const PASSWORD: &[u8] = b"\x91\xa8password";

fn get(at: &[&Listener], options: &[&str], environment: &[(&str, &str)]) -> Done {
    let at: Vec<String> = at.iter().map(|one| one.address.to_string()).collect();
    let at = at.join(",");
    let as_joe = ["get", "a", "--connect", &at, "--user", "joe", "--secret-env", "SECRET"];
    let environment = [&[("SECRET", SECRET)][..], environment].concat();
    run(&[&as_joe[..], options].concat(), &environment, b"")
}

fn is_refused(done: &Done, at: &Listener) {
    assert_eq!((done.code, done.stdout.as_str()), (3, ""), "{done:?}");
    let address = at.address.to_string();
    for part in [&*address, "in plain text", "a ticket", "--key", "--plaintext-login"] {
        assert!(done.stderr.contains(part), "{part}: {done:?}");
    }
}

#[test]
fn commands_send_no_secret_in_plain_text_to_another_machine_unless_they_are_told_to() {
    let name = "secure::plaintext_login::commands_send_no_secret_in_plain_text_to_another_machine_unless_they_are_told_to";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        let [one, two] = [(); 2].map(|()| Listener::start(ELSEWHERE, PASSWORD));
        is_refused(&get(&[&one], &[], &[]), &one);
        one.has_learned_nothing();
        // A program is told by a word.
        let done = get(&[&one], &["--json"], &[]);
        let told: serde_json::Value = serde_json::from_str(done.stderr.trim()).unwrap();
        assert_eq!(
            (&told["code"], &told["outcome"]),
            (&"plaintext_login".into(), &"refused".into())
        );
        one.has_learned_nothing();
        // By the smart client.
        let done = get(&[&one, &two], &["--timeout", "20s"], &[]);
        assert_eq!(done.code, 3, "{done:?}");
        assert!(done.stderr.contains("--plaintext-login"), "{done:?}");
        one.has_learned_nothing();
        two.has_learned_nothing();
        for (options, environment) in
            [(&["--plaintext-login"][..], &[][..]), (&[], &[("DISTKV_PLAINTEXT_LOGIN", "1")])]
        {
            let done = get(&[&one], options, environment);
            assert_eq!((done.code, done.stdout.trim()), (0, "7"), "{done:?}");
            one.has_got_the_secret();
        }
        is_refused(&get(&[&one], &[], &[("DISTKV_PLAINTEXT_LOGIN", "0")]), &one);
        let done = get(&[&one], &[], &[("DISTKV_PLAINTEXT_LOGIN", "perhaps")]);
        assert_eq!(done.code, 2, "{done:?}");
        assert!(done.stderr.contains("DISTKV_PLAINTEXT_LOGIN"), "{done:?}");
        one.has_learned_nothing();
        // On the same machine.
        let here = Listener::start(HERE, PASSWORD);
        let done = get(&[&here], &[], &[]);
        assert_eq!((done.code, done.stdout.trim()), (0, "7"), "{done:?}");
        here.has_got_the_secret();
    });
}

#[test]
fn who_has_no_secret_to_lose_is_not_refused() {
    let name = "secure::plaintext_login::who_has_no_secret_to_lose_is_not_refused";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        // It asks for no login.
        let open = Listener::start(ELSEWHERE, b"\x91\xc0");
        assert_eq!(get(&[&open], &[], &[]).code, 0);
        open.has_learned_nothing();
        // A method that has none; it gets none then, whoever has asked for that method.
        for (asks, options) in [(PASSWORD, &["--login", "root"][..]), (b"\x91\xa4root", &[])] {
            let of_root = Listener::start(ELSEWHERE, asks);
            assert_eq!(get(&[&of_root], options, &[]).code, 0);
            let (logins, has_secret) = of_root.logins();
            assert_eq!(logins.len(), 1);
            assert_eq!((logins[0].str("typ"), has_secret), (Some("root"), false));
        }
        // Of a method that nobody knows, nobody knows that either.
        let unknown = Listener::start(ELSEWHERE, b"\x91\xa5other");
        is_refused(&get(&[&unknown], &[], &[]), &unknown);
        unknown.has_learned_nothing();
    });
}

/// Where no login is asked for, there is a secret to lose all the same: the new user's.
#[test]
fn no_new_secret_is_sent_or_asked_for_in_plain_text() {
    let name = "secure::plaintext_login::no_new_secret_is_sent_or_asked_for_in_plain_text";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        let folder = tempfile::tempdir().unwrap();
        let to = folder.path().join("ticket");
        let to = to.to_str().unwrap();
        let [open, here] = [ELSEWHERE, HERE].map(|at| Listener::start(at, b"\x91\xc0"));
        let ask = |at: &Listener, command: &[&str], more: &[&str]| {
            let at = ["--connect", &at.address.to_string()].map(str::to_owned);
            let at = [&*at[0], &*at[1]];
            run(&[&["user"], command, &at, more].concat(), &[], SECRET.as_bytes())
        };
        let commands = [
            &["add", "joe", "--acl", "*"][..],
            &["add", "joe", "--method", "token", "--acl", "*"],
            &["password", "joe"],
            &["token", "joe"],
            &["token", "joe", "--to", to],
            &["ticket", "joe", "--to", to],
        ];
        for command in commands {
            let done = ask(&open, command, &[]);
            is_refused(&done, &open);
            assert!(done.stderr.contains("nothing was changed"), "{done:?}");
            open.has_learned_nothing();
            // Whoever listens has no such action.
            for done in [ask(&open, command, &["--plaintext-login"]), ask(&here, command, &[])] {
                assert!(!done.stderr.contains("plain text"), "{done:?}");
            }
            assert!(has(&open.heard(), "joe") && has(&here.heard(), "joe"), "{command:?}");
        }
        assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "no file is left");
        // Who has none can be made.
        ask(&open, &["add", "*", "--method", "root"], &[]);
        assert!(has(&open.heard(), "auth_set"));
    });
}

#[test]
fn programs_send_no_secret_in_plain_text_to_another_machine_unless_they_are_told_to() {
    let name = "secure::plaintext_login::programs_send_no_secret_in_plain_text_to_another_machine_unless_they_are_told_to";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        let [one, here] = [ELSEWHERE, HERE].map(|at| Listener::start(at, PASSWORD));
        let path: Path = "a".parse().unwrap();
        let login = || Login::user(Some("password"), "joe", Some(SECRET));
        block_on(async {
            let connect = |config: ClientConfig, at: &[&Listener]| {
                let seeds: Vec<_> = at.iter().map(|at| at.address.into()).collect();
                Client::connect(seeds, config)
            };
            let is_refused = |error: CallError| {
                assert_eq!(error.code(), Some("plaintext_login"), "{error}");
                let CallError::NoAccess { error: ClientError::NoAccess { reason, .. }, .. } =
                    &error
                else {
                    panic!("{error:?}")
                };
                assert!(reason.contains("plaintext_login"), "{reason}");
                assert!(error.to_string().contains(&one.address.to_string()), "{error}");
                one.has_learned_nothing();
            };
            is_refused(connect(ClientConfig::new().login(login()), &[&one]).await.unwrap_err());
            // A ticket without a CA is plain text, too.
            let ticket = Ticket {
                addresses: vec![one.address.to_string()],
                network: String::new(),
                login: Some(distkv_tls::Login {
                    method: "password".into(),
                    user: "joe".into(),
                    secret: Some(SECRET.into()),
                }),
                ca: None,
                certificate: None,
            };
            let refused = Client::connect_with_ticket(&ticket, ClientConfig::new()).await;
            is_refused(refused.unwrap_err());
            // Whichever was said first.
            let access = Access::default().log_in(login());
            let may = ClientConfig::new().plaintext_login(true);
            for config in [
                may.clone().login(login()),
                may.clone().access(access.clone()),
                ClientConfig::new().access(access.clone()).plaintext_login(true),
                ClientConfig::new().access(access.plaintext_login(true)),
            ] {
                let client = connect(config, &[&one]).await.unwrap();
                assert_eq!(client.get::<u8>(&path).await, Ok(Some(7)));
                client.close().await;
                one.has_got_the_secret();
            }
            let client = Client::connect_with_ticket(&ticket, may).await.unwrap();
            client.close().await;
            one.has_got_the_secret();
            // It goes on with the nodes of its own machine, as with those that let it in.
            let client = connect(ClientConfig::new().login(login()), &[&one, &here]).await.unwrap();
            for _ in 0..9 {
                assert_eq!(client.get::<u8>(&path).await, Ok(Some(7)));
            }
            client.close().await;
            one.has_learned_nothing();
            here.has_got_the_secret();
        });
    });
}

#[test]
fn who_has_a_key_is_told_to_do_without_tls_on_this_machine_only() {
    let name =
        "secure::plaintext_login::who_has_a_key_is_told_to_do_without_tls_on_this_machine_only";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        let keys = Keys::new();
        let (key, _) = keys.make("key");
        for (at, is_told) in [(HERE, true), (ELSEWHERE, false)] {
            let plain = Listener::start(at, PASSWORD);
            let address = plain.address.to_string();
            let done = run(&["get", "a", "--connect", &address, "--key", &key], &[], b"");
            assert_eq!(done.code, 3, "{done:?}");
            assert_eq!(done.stderr.contains("leave out --key"), is_told, "{done:?}");
            assert_eq!(done.stderr.contains("no TLS there"), !is_told, "{done:?}");
        }
    });
}

/// A load speaks the protocol by itself, at more than the node that is asked before.
#[test]
fn a_load_sends_no_secret_in_plain_text_to_another_machine_either() {
    let name =
        "secure::plaintext_login::a_load_sends_no_secret_in_plain_text_to_another_machine_either";
    inside_own_network(name, || {
        let _hosts = Hosts::new(&[0]);
        let [here, one] = [HERE, ELSEWHERE].map(|at| Listener::start(at, PASSWORD));
        let at = [&here, &one].map(|at| at.address.to_string());
        let bench = |more: &[&str]| {
            let own = ["bench", "--target", &at[0], "--target", &at[1], "--connections", "2"];
            let load = ["--no-fill", "--keep", "--reads", "1", "--count", "2", "--warm-up", "0s"];
            let as_joe = ["--user", "joe", "--secret-env", "SECRET"];
            run(&[&own, &load[..], &as_joe, more].concat(), &[("SECRET", SECRET)], b"")
        };
        let done = bench(&[]);
        assert_ne!(done.code, 0, "{done:?}");
        assert!(done.stderr.contains("in plain text"), "{done:?}");
        one.has_learned_nothing();
        here.has_got_the_secret();
        bench(&["--plaintext-login"]);
        one.has_got_the_secret();
    });
}
