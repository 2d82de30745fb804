//! The certificate that this node shows its clients: issued from the network's CA and renewed in memory, or the operator's
//! own, read again when its files change. A bad file is warned of, and so is one that no client could believe, and the
//! certificate before it stays; until it is good or another one is there, it is tried again and again: what keeps it from being
//! read may pass.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use distkv_command::output::shell_file;
use distkv_command::plain_file;
use distkv_tls::pem::PEM_BYTES_MAX;
use distkv_tls::server::ClientRoots;
use distkv_tls::{CaHash, Clock, Identity, Presented, ServerTls, pem};
use event_listener::Event;
use parking_lot::Mutex;

use super::changed_certificate::oddities;
use crate::model::host_port::HostPort;
use crate::node::config::{HttpConfig, TlsConfig};
use crate::node::error::NodeError;
use crate::node::membership::identity::Myself;
use crate::node::monitoring::certificate::{ExpiryWatch, untimely, warning};
use crate::rt;
use crate::server::TlsSettings;

/// A certificate of the network's CA is renewed at this age, in seconds: it is valid for 30 days.
const RENEW_AFTER_SECS: u64 = 24 * 3_600;
/// It is also renewed if it was issued so long after the present time: the clock was set back. Certificates are valid from
/// an hour before they are issued.
const AHEAD_SECS: u64 = 600;
/// The time between two looks at the files, and at the node's names; what could not be taken is tried again as often.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// The time between two looks at the clock, which may be set right by years once the network is up: nobody who has the
/// right time believes the certificate until it is renewed.
const CLOCK_INTERVAL: Duration = Duration::from_secs(1);
/// Of a file's mode: those who are neither its owner nor of its group may read it.
const OTHERS_READ: u32 = 0o004;
/// Of a machine with more addresses, the rest is not in its certificate; `--cert-name` puts it there.
const OWN_ADDRESSES_MAX: usize = 64;

/// See the module.
pub(in crate::node) struct Certificates {
    config: TlsConfig,
    /// The host at which the HTTP port listens, if there is one.
    http: Option<String>,
    me: Arc<Myself>,
    server: Arc<ServerTls>,
    /// What clients are shown.
    presented: Mutex<Presented>,
    /// What the last try was made of, whether it came to something or not.
    shown: Mutex<Shown>,
    refused: Mutex<Refused>,
    expiry: Mutex<ExpiryWatch>,
    /// Someone asks for a look at once.
    reload: Event,
}

/// What a certificate was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Shown {
    names: Vec<String>,
    /// Why the machine's addresses are not among the names, if they should be.
    unlisted: Option<String>,
    /// The warning of a key of the operator's that others can read.
    open_key: Option<String>,
    issued_at: u64,
    files: Vec<Option<Stamp>>,
}

/// By what a file is seen to be another one, or to have changed: its number, its length, and when its content and its
/// owner or permissions were changed last. Tools that copy times along, or set all to one, leave the others.
type Stamp = (u64, u64, (i64, i64), (i64, i64));

/// The certificate that could not take the present one's place.
#[derive(Default)]
struct Refused {
    /// Why, if the last try came to nothing.
    why: Option<String>,
    /// The reason that the log has.
    told: Option<String>,
}

impl Certificates {
    /// Reads or issues the first one. One that is not valid now is taken: the clock may be wrong until the network is up, and
    /// other nodes, and clients that do not use TLS, need this one all the same.
    ///
    /// # Errors
    /// [`NodeError::Certificate`]: a node does not start with a bad file.
    pub(in crate::node) fn open(
        config: &TlsConfig,
        http: Option<&HttpConfig>,
        me: &Arc<Myself>,
    ) -> Result<Arc<Self>, NodeError> {
        let http = http.and_then(|http| HostPort::parse(&http.address, Some(0)).ok());
        let http = http.map(|address| address.host);
        let shown = Shown::now(config, http.as_deref(), me);
        shown.warn_of_unlisted();
        shown.warn_of_open_key();
        let (identity, clients) = make(config, &shown).map_err(NodeError::Certificate)?;
        let clock = Clock::new(now_secs);
        let server = ServerTls::new(&identity, &clients, clock)
            .map_err(|error| NodeError::Certificate(error.to_string()))?;
        Ok(Arc::new(Self {
            config: config.clone(),
            http,
            me: Arc::clone(me),
            server: Arc::new(server),
            presented: Mutex::new(identity.presented()),
            shown: Mutex::new(shown),
            refused: Mutex::default(),
            expiry: Mutex::default(),
            reload: Event::new(),
        }))
    }

    /// What the client port needs.
    pub(in crate::node) fn settings(&self) -> TlsSettings {
        TlsSettings {
            tls: Arc::clone(&self.server),
            is_plain_at_home: self.config.is_plain_at_home,
            plain: self.config.plain.clone(),
        }
    }

    /// By what clients know the CA.
    pub(in crate::node) fn ca_hash(&self) -> Option<CaHash> {
        self.server.ca_hash()
    }

    /// Has the files read again, changed or not, and what is wrong with them told again.
    pub(in crate::node) fn reload(&self) {
        *self.shown.lock() = Shown::default();
        self.refused.lock().told = None;
        self.reload.notify(usize::MAX);
    }

    /// One line for people, if the certificate expires soon or is not valid now, another one cannot take its place, or others
    /// can read its key.
    pub(in crate::node) fn warning(&self) -> Option<String> {
        let period = self.server.period();
        let of_period = period.and_then(|period| warning(&name(&self.config), period, now_secs()));
        let of_refused = self.refused.lock().why.as_deref().map(refusal);
        together([of_period, of_refused, self.shown.lock().open_key.clone()])
    }

    /// Whether the clock alone says that another certificate is due.
    fn is_old(&self) -> bool {
        self.config.own.is_none() && self.shown.lock().is_old(now_secs())
    }

    /// Looks whether another certificate is due, and whether the present one expires.
    fn look(&self) {
        self.renew();
        if let Some(period) = self.server.period() {
            let now = (rt::now(), now_secs());
            self.expiry.lock().look(&name(&self.config), period, now);
        }
    }

    fn renew(&self) {
        let now = Shown::now(&self.config, self.http.as_deref(), &self.me);
        {
            let mut shown = self.shown.lock();
            if now.unlisted != shown.unlisted {
                now.warn_of_unlisted();
                shown.unlisted.clone_from(&now.unlisted);
            }
            if now.open_key != shown.open_key {
                now.warn_of_open_key();
                shown.open_key.clone_from(&now.open_key);
            }
            let has_failed = self.refused.lock().why.is_some();
            if !has_failed && !now.is_due(&shown, self.config.own.is_some()) {
                return;
            }
            // Before the files are read: what changes meanwhile, and who asks, is not missed.
            shown.clone_from(&now);
        }
        match self.replace(&now) {
            Ok(()) if self.config.own.is_some() => {
                tracing::info!(
                    file = name(&self.config),
                    "the certificate for clients was read again"
                );
            }
            Ok(()) => tracing::info!(
                names = now.names.join(" "),
                "the certificate for clients is renewed"
            ),
            Err(why) => {
                let mut refused = self.refused.lock();
                if refused.told.as_ref() != Some(&why) {
                    tracing::warn!("{}", refusal(&why));
                    refused.told = Some(why.clone());
                }
                refused.why = Some(why);
                return;
            }
        }
        *self.refused.lock() = Refused::default();
    }

    fn replace(&self, with: &Shown) -> Result<(), String> {
        let (identity, clients) = make(&self.config, with)?;
        if let Some((cert, _)) = &self.config.own
            && let Some(why) = identity.period().and_then(|period| untimely(period, now_secs()))
        {
            return Err(format!("{}: {why}", cert.display()));
        }
        self.server.replace(&identity, &clients).map_err(|error| error.to_string())?;
        let before = std::mem::replace(&mut *self.presented.lock(), identity.presented());
        if self.config.own.is_some() {
            let told = HostPort::parse(&self.me.client_text(None), Some(0));
            let host = told.ok().map(|told| told.host).filter(|host| !is_wildcard(host));
            for odd in oddities(&before, &identity.presented(), host.as_deref()) {
                tracing::warn!("{odd}");
            }
        }
        Ok(())
    }
}

/// For people: that the present certificate stays, and why.
fn refusal(why: &str) -> String {
    let seconds = LOOK_INTERVAL.as_secs();
    format!(
        "the certificate for clients stays as it is: {why}; this is tried again every {seconds} s"
    )
}

impl Shown {
    fn now(config: &TlsConfig, http: Option<&str>, me: &Myself) -> Self {
        let own = config.own.iter().flat_map(|(cert, key)| [cert, key]);
        let stamp = |path: &Path| {
            let of = fs::metadata(path).ok()?;
            let (written, changed) = ((of.mtime(), of.mtime_nsec()), (of.ctime(), of.ctime_nsec()));
            Some((of.ino(), of.len(), written, changed))
        };
        let files = own.chain(&config.client_ca).map(|path| stamp(path)).collect();
        let (names, unlisted) = match config.own {
            Some(_) => (Vec::new(), None),
            None => names_of(config, http, me),
        };
        Self { names, unlisted, open_key: open_key(config), issued_at: now_secs(), files }
    }

    fn warn_of_open_key(&self) {
        if let Some(warning) = &self.open_key {
            tracing::warn!("{warning}");
        }
    }

    fn warn_of_unlisted(&self) {
        if let Some(why) = &self.unlisted {
            tracing::warn!(
                "this machine's addresses cannot be listed ({why}), so they are not in the certificate for clients: who \
                 connects by one of them does not believe it; name them with --cert-name, or let the node use sockets of the \
                 family AF_NETLINK"
            );
        }
    }

    /// Whether another certificate must be made than what was shown before.
    fn is_due(&self, before: &Self, is_own: bool) -> bool {
        let is_old = !is_own && before.is_old(self.issued_at);
        is_old || before.names != self.names || before.files != self.files
    }

    /// Whether the node's own certificate must be renewed by now, in seconds since 1970.
    fn is_old(&self, now: u64) -> bool {
        let age = now.saturating_sub(self.issued_at);
        // The clock was set back: a certificate of later days is not valid yet.
        let ahead = self.issued_at.saturating_sub(now);
        age >= RENEW_AFTER_SECS || ahead >= AHEAD_SECS
    }
}

/// The warning of a key of the operator's that every user of the machine can read. That a group can is usual: there are
/// groups for that.
fn open_key(config: &TlsConfig) -> Option<String> {
    let (_, key) = config.own.as_ref()?;
    let mode = fs::metadata(key).ok()?.mode() & 0o7777;
    (mode & OTHERS_READ != 0).then(|| {
        format!(
            "every user of this machine can read the certificate's key {} (mode {mode:04o}); type: chmod o-rwx {}",
            key.display(),
            shell_file(key)
        )
    })
}

/// Several warnings in one line.
fn together(warnings: [Option<String>; 3]) -> Option<String> {
    let all: Vec<String> = warnings.into_iter().flatten().collect();
    (!all.is_empty()).then(|| all.join("; "))
}

/// What the certificate is called in warnings.
fn name(config: &TlsConfig) -> String {
    let own = config.own.as_ref().map(|(cert, _)| cert.display().to_string());
    own.unwrap_or_else(|| String::from("which this node makes"))
}

/// Whether a node could begin with these files; and a warning of a certificate that expires soon or is not valid now, or
/// whose key others can read.
///
/// # Errors
/// What is wrong with one of them.
pub(in crate::node) fn check(config: &TlsConfig) -> Result<Option<String>, String> {
    let shown = Shown { names: vec![String::from("localhost")], ..Shown::default() };
    let (identity, clients) = make(config, &shown)?;
    let clock = Clock::new(now_secs);
    let server = ServerTls::new(&identity, &clients, clock).map_err(|error| error.to_string())?;
    let of_period = server.period().and_then(|period| warning(&name(config), period, now_secs()));
    Ok(together([of_period, open_key(config), None]))
}

/// Looks after the certificate until the node has ended.
pub(in crate::node) async fn look_after(certificates: Weak<Certificates>) {
    // The first look is soon, for what is to be said of the certificate at once.
    let (mut interval, mut next_look) = (Duration::ZERO, 0);
    loop {
        let Some(listener) = certificates.upgrade().map(|own| own.reload.listen()) else { return };
        let is_asked = rt::timeout(interval, listener).await.is_some();
        interval = CLOCK_INTERVAL;
        let Some(own) = certificates.upgrade() else { return };
        if !is_asked && rt::now() < next_look && !own.is_old() {
            continue;
        }
        // Files are read, and a key is made.
        rt::spawn_blocking(move || own.look()).await;
        next_look = rt::now() + rt::millis(LOOK_INTERVAL);
    }
}

/// The certificate, and whose certificates log clients in.
fn make(config: &TlsConfig, shown: &Shown) -> Result<(Identity, ClientRoots), String> {
    let identity = match (&config.own, &config.ca) {
        (Some((cert, key)), _) => {
            let identity = pem::identity_of_any_time(&read(cert)?, &read(key)?);
            let identity = identity
                .map_err(|error| format!("{} and {}: {error}", cert.display(), key.display()))?;
            let fits = identity.presented().check();
            fits.map_err(|error| format!("{}: {error}", cert.display()))?;
            identity
        }
        (None, Some(ca)) => {
            let names: Vec<&str> = shown.names.iter().map(String::as_str).collect();
            ca.issue_node(&names, now_secs()).map_err(|error| error.to_string())?
        }
        (None, None) => return Err(String::from("there is neither a key file nor --cert")),
    };
    let mut clients = ClientRoots::none();
    if let Some(ca) = &config.ca {
        clients = clients.with_ca(ca).map_err(|error| error.to_string())?;
    }
    if let Some(path) = &config.client_ca {
        let with = clients.with_pem(&read(path)?);
        clients = with.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok((identity, clients))
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("{} cannot be read: {error}", path.display());
    let mut bytes = Vec::new();
    // One more than is taken, so that what is too long is found to be.
    let most = PEM_BYTES_MAX as u64 + 1;
    // A pipe would keep the node from starting, until somebody writes into it.
    let opened = plain_file::open(path).map_err(failed)?;
    opened.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether a host stands for all of this machine's addresses, so that nobody connects to it.
fn is_wildcard(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// By which names and addresses clients may connect, by the client port or by HTTP: those that were given, the host's, the
/// advertised ones, and this machine's own, where a port listens on all of them. And why those are missing, if they are.
fn names_of(config: &TlsConfig, http: Option<&str>, me: &Myself) -> (Vec<String>, Option<String>) {
    let mut names = config.names.clone();
    // What clients are told may lead through a forwarder; who is nearer comes without.
    for told in [me.client_text(None), me.client_port_text(None)] {
        let host = HostPort::parse(&told, Some(0)).ok().map(|told| told.host);
        names.extend(host.filter(|host| !is_wildcard(host)));
    }
    names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    let mut unlisted = None;
    let client = me.client.ip().to_canonical().to_string();
    for host in [client.as_str()].into_iter().chain(http) {
        match is_wildcard(host).then(own_addresses) {
            None => names.push(host.to_owned()),
            Some(Ok(own)) => names.extend(own.iter().map(IpAddr::to_string)),
            Some(Err(error)) => unlisted = Some(error.to_string()),
        }
    }
    names.extend(["localhost", "127.0.0.1", "::1"].map(String::from));
    let mut seen = Vec::new();
    names.retain(|name| {
        let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_graphic());
        let is_new = is_name && !seen.contains(name);
        if is_new {
            seen.push(name.clone());
        }
        is_new
    });
    (names, unlisted)
}

/// The addresses of this machine at which others may reach it, sorted; without those that are of one link only, which need the
/// link's name with them.
fn own_addresses() -> io::Result<Vec<IpAddr>> {
    let is_of_link = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let interfaces = if_addrs::get_if_addrs()?;
    let addresses = interfaces.into_iter().filter(|one| !one.is_loopback()).map(|one| one.ip());
    // Another order would be another certificate.
    let sorted: BTreeSet<IpAddr> = addresses.filter(|ip| !is_of_link(ip)).collect();
    Ok(sorted.into_iter().take(OWN_ADDRESSES_MAX).collect())
}

fn now_secs() -> u64 {
    rt::wall_clock_ms() / 1_000
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};
    use std::os::unix::fs::PermissionsExt;
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::model::ids::NodeName;
    use crate::node::membership::address::Advertised;

    fn me(client: &str) -> Myself {
        let client = client.parse().unwrap();
        let (name, gossip) = (NodeName::new("n1").unwrap(), "127.0.0.1:1".parse().unwrap());
        let advertised = Advertised::Route { port: 1, name: None };
        Myself::new(name, String::from("plant"), client, gossip, advertised)
    }

    #[test]
    fn a_key_that_everybody_can_read_is_warned_of_and_one_that_a_group_can_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let [cert, key] = ["node.pem", "a node.key"].map(|name| folder.path().join(name));
        fs::write(&key, "a key").unwrap();
        let config = TlsConfig { own: Some((cert, key.clone())), ..TlsConfig::default() };
        for (mode, is_open) in [(0o600, false), (0o640, false), (0o644, true), (0o604, true)] {
            fs::set_permissions(&key, fs::Permissions::from_mode(mode)).unwrap();
            let warning = open_key(&config);
            assert_eq!(warning.is_some(), is_open, "{mode:o}");
            let what_to_do = format!("type: chmod o-rwx '{}'", key.display());
            assert!(warning.is_none_or(|warning| warning.contains(&what_to_do)));
        }
        assert_eq!(open_key(&TlsConfig::default()), None);
    }

    #[test]
    fn the_certificate_has_the_addresses_of_both_ports() {
        let names = |client: &str, http| names_of(&TlsConfig::default(), http, &me(client)).0;
        let near = names("127.0.0.1:1", None);
        assert!(near.contains(&String::from("localhost")), "{near:?}");
        let http = names("127.0.0.1:1", Some("192.0.2.7"));
        assert!(http.contains(&String::from("192.0.2.7")), "{http:?}");
        let named = names("127.0.0.1:1", Some("n1.example.org"));
        assert!(named.contains(&String::from("n1.example.org")), "{named:?}");
        for own in own_addresses().unwrap() {
            let own = own.to_string();
            assert!(!near.contains(&own), "nothing listens there: {near:?}");
            for (client, http) in
                [("0.0.0.0:1", None), ("127.0.0.1:1", Some("0.0.0.0")), ("[::]:1", None)]
            {
                let names = names(client, http);
                assert!(names.contains(&own), "{client} {http:?}: {names:?}");
                assert!(!names.iter().any(|name| is_wildcard(name)), "{names:?}");
            }
        }
    }

    #[test]
    fn the_certificate_has_the_host_that_clients_are_told_beside_the_one_that_peers_are() {
        let addr: SocketAddr = "192.0.2.7:99".parse().unwrap();
        let advertised = Advertised::Fixed { text: addr.into(), addr };
        let (name, gossip) = (NodeName::new("n1").unwrap(), "127.0.0.1:1".parse().unwrap());
        let client = "0.0.0.0:1".parse().unwrap();
        let me = Myself::new(name, String::from("plant"), client, gossip, advertised);
        let told = HostPort { host: "n1.example.org".into(), port: 37586 };
        let me = me.with_advertised_client(Some(told));
        let (names, _) = names_of(&TlsConfig::default(), None, &me);
        for host in ["n1.example.org", "192.0.2.7", "localhost"] {
            assert!(names.contains(&String::from(host)), "{names:?}");
        }
    }

    #[test]
    fn own_addresses_can_be_reached_from_elsewhere() {
        for ip in own_addresses().unwrap() {
            assert!(!ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast(), "{ip}");
            // They are this machine's: only its own can be bound.
            UdpSocket::bind((ip, 0)).unwrap();
        }
    }

    #[test]
    fn a_file_that_is_another_one_or_may_be_read_now_is_looked_at_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let config = TlsConfig { own: Some((path("cert"), path("key"))), ..TlsConfig::default() };
        let me = me("127.0.0.1:1");
        let write = |name: &str| {
            fs::write(path(name), "same").unwrap();
            // As tools leave it that make the same files again.
            fs::File::options()
                .write(true)
                .open(path(name))
                .unwrap()
                .set_modified(UNIX_EPOCH)
                .unwrap();
        };
        write("cert");
        write("key");
        let before = Shown::now(&config, None, &me);
        let is_due = |before: &Shown| Shown::now(&config, None, &me).is_due(before, true);
        assert!(!is_due(&before));
        write("other");
        fs::rename(path("other"), path("cert")).unwrap();
        assert!(is_due(&before));
        let before = Shown::now(&config, None, &me);
        // The times of files do not tell moments apart that follow each other at once.
        assert!((0..1_000_000).any(|_| {
            fs::set_permissions(path("key"), fs::Permissions::from_mode(0o640)).unwrap();
            is_due(&before)
        }));
    }

    #[test]
    fn a_certificate_is_renewed_every_day_and_when_the_clock_was_set_back() {
        const NOW: u64 = 1_800_000_000;
        let at = |issued_at| Shown { names: vec!["n1".into()], issued_at, ..Shown::default() };
        for (issued_at, is_due) in [
            (NOW, false),
            (NOW - RENEW_AFTER_SECS + 1, false),
            (NOW - RENEW_AFTER_SECS, true),
            (NOW + AHEAD_SECS - 1, false),
            (NOW + AHEAD_SECS, true),
            (NOW + 365 * 86_400, true),
            // It was issued before this machine was told the time.
            (30, true),
        ] {
            assert_eq!(at(NOW).is_due(&at(issued_at), false), is_due, "{issued_at}");
            assert!(!at(NOW).is_due(&at(issued_at), true), "the operator renews own ones");
            assert_eq!(at(issued_at).is_old(NOW), is_due, "{issued_at}");
        }
        let other = Shown { names: vec!["n2".into()], ..at(NOW) };
        assert!(other.is_due(&at(NOW), false));
    }
}
