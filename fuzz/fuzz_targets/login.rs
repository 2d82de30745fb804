//! Whatever a client says before it has logged in, and how it goes about that: messages about logins must be decoded
//! or refused, within their bounds; nothing but a secret that was good before, and nothing but a proof made with the
//! key, may count; guesses must be slowed down.
#![no_main]

use std::collections::BTreeSet;
use std::net::IpAddr;

use distkv_model::ids::{Event, NodeIndex, Tick};
use distkv_model::value::{write_bin, write_map_len, write_nil, write_str, write_u64};
use distkv_core::protocol::client::auth::{
    AuthRequest, NAME_BYTES_MAX, PUBLIC_KEY_BYTES_MAX, SECRET_BYTES_MAX,
};
use distkv_core::protocol::client::{ClientMessage, Request, decode};
use distkv_access::dh::{BoxKey, Group};
use distkv_access::secret::cache::Login as Cached;
use distkv_access::secret::guesses::{Begin, FREE, Outcome, WAIT_MS_MAX};
use distkv_access::secret::key::{Nonces, Side, is_proof, prove};
use distkv_access::secret::wrong::Attempt;
use distkv_access::secret::{Guesses, LoginCache, Sent, WrongSecrets};
use libfuzzer_sys::fuzz_target;

const KEY: [u8; 32] = [7; 32];
const NODE_NONCE: [u8; 32] = [9; 32];
const ACTIONS: [&str; 9] = [
    "auth", "diffie_hellman", "auth_set", "auth_get", "auth_list", "auth_delete", "set_auth_typ",
    "auth_info", "auth_disconnect",
];
const FIELDS: [&str; 15] = [
    "typ", "ident", "password", "secret", "nonce", "proof", "pubkey", "length", "kind", "chain",
    "acl", "role", "grace_ms", "state", "nchain",
];
const WORDS: [&str; 8] = ["password", "token", "key", "root", "joe", "user", "start", ""];

/// A message made of the front of some bytes, and what is behind them.
fn message(data: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let ([action, count], mut rest) = data.split_first_chunk::<2>()?;
    let count = usize::from(count % 8);
    let mut out = Vec::new();
    write_map_len(count + 2, &mut out);
    write_str("seq", &mut out);
    write_u64(u64::from(*action) + 1, &mut out);
    write_str("action", &mut out);
    write_str(ACTIONS[usize::from(*action) % ACTIONS.len()], &mut out);
    for _ in 0..count {
        let ([field, kind], behind) = rest.split_first_chunk::<2>()?;
        write_str(FIELDS[usize::from(*field) % FIELDS.len()], &mut out);
        let length = usize::from(*kind / 8).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        match kind % 8 {
            0 => write_str(WORDS[length % WORDS.len()], &mut out),
            1 => write_str(&String::from_utf8_lossy(bytes), &mut out),
            2 => write_bin(bytes, &mut out),
            3 => write_u64(bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)), &mut out),
            4 => write_nil(&mut out),
            // A real proof, for the nonce in front of it.
            5 => {
                let nonces = Nonces { client: nonce(bytes), node: NODE_NONCE };
                write_bin(&prove(&KEY, Side::Client, &nonces), &mut out);
            }
            6 => write_str(&"x".repeat(length * length * 8), &mut out),
            // Whatever it is.
            _ => out.extend_from_slice(bytes),
        }
    }
    Some((out, rest))
}

fn nonce(bytes: &[u8]) -> [u8; 32] {
    let mut nonce = [0; 32];
    nonce.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
    nonce
}

/// What the node knows of tries.
struct Node {
    guesses: Guesses,
    cache: LoginCache,
    /// What was good, as it came.
    good: BTreeSet<(String, String, u64, Vec<u8>)>,
    wrong: WrongSecrets,
    /// What was wrong, as it came.
    bad: BTreeSet<(String, String, u64, Vec<u8>)>,
    /// Guesses by anybody.
    failures: u32,
    now: u64,
}

impl Node {
    fn take(&mut self, request: &AuthRequest<'_>) {
        match request {
            AuthRequest::Exchange { public, bits } => {
                assert!(public.len() <= PUBLIC_KEY_BYTES_MAX);
                assert!(Group::of_length(*bits, true).is_ok());
            }
            AuthRequest::Login(login) => {
                for name in [login.method, login.user] {
                    assert!((1..=NAME_BYTES_MAX).contains(&name.len()));
                }
                let secrets = [login.sealed, login.secret, login.nonce, login.proof];
                assert!(secrets.iter().flatten().all(|bytes| bytes.len() <= SECRET_BYTES_MAX));
                if let (Some(client), Some(proof)) = (login.nonce, login.proof) {
                    let nonces = Nonces { client: nonce(client), node: NODE_NONCE };
                    let is_real = prove(&KEY, Side::Client, &nonces)[..] == *proof;
                    assert_eq!(is_proof(&KEY, Side::Client, &nonces, proof), is_real);
                    assert!(!is_real || !is_proof(&KEY, Side::Node, &nonces, proof));
                }
                if let Some(sealed) = login.sealed {
                    assert!(BoxKey::new(KEY).open(sealed).is_err(), "nobody has sealed it");
                }
                if let Some(secret) = login.secret {
                    self.guess(login.method, login.user, secret);
                }
            }
            AuthRequest::Set(change) => {
                assert!((1..=NAME_BYTES_MAX).contains(&change.user.len()));
            }
            _ => {}
        }
        // For the log.
        let _ = format!("{request:?}");
    }

    fn guess(&mut self, method: &str, user: &str, secret: &[u8]) {
        let tick = u64::from(secret.first().copied().unwrap_or(0)) + 1;
        let event = Event { node: NodeIndex(0), tick: Tick::new(tick).expect("a tick") };
        let sent = Sent::of_text(&String::from_utf8_lossy(secret));
        let text = String::from_utf8_lossy(secret).as_bytes().to_vec();
        let kept = (method.to_owned(), user.to_owned(), tick, text);
        let login = Cached { method, ident: user, event };
        assert_eq!(self.cache.knows(login, &sent), self.good.contains(&kept));
        let address = IpAddr::from([10, 0, 0, 1]);
        let begun = match self.guesses.begin(user, address, self.now) {
            Begin::Begun(begun) => begun,
            Begin::Waits => panic!("no other one is under way"),
            Begin::Refused(wait) => {
                assert!((1..=WAIT_MS_MAX).contains(&wait), "{wait}");
                assert!(self.failures >= FREE, "nobody waits before");
                self.now += u64::from(tick % 3) * wait;
                return;
            }
        };
        let outcome = if secret.len() % 4 == 3 {
            self.cache.remember(login, &sent);
            self.good.insert(kept);
            Outcome::Right
        } else {
            let attempt = Attempt { method, ident: user, event: Some(event), address };
            let mark = self.wrong.mark(attempt, &sent).expect("a mark");
            assert_eq!(self.wrong.knows(&mark), self.bad.contains(&kept));
            let is_new = self.wrong.note(mark);
            assert_eq!(is_new, self.bad.insert(kept), "the same again is no guess, and another one is");
            if is_new {
                self.failures += 1;
                Outcome::Wrong
            } else {
                Outcome::WrongAgain
            }
        };
        self.guesses.end(begun, outcome, self.now);
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = decode(data);
    let mut node = Node {
        guesses: Guesses::default(),
        cache: LoginCache::new([3; 32]),
        good: BTreeSet::new(),
        wrong: WrongSecrets::new([4; 32]),
        bad: BTreeSet::new(),
        failures: 0,
        now: 1_000,
    };
    let mut rest = data;
    while let Some((message, behind)) = message(rest) {
        rest = behind;
        if let Ok(ClientMessage::Request { request: Request::Auth(request), .. }) = decode(&message) {
            node.take(&request);
        }
        node.now += 100;
    }
});
