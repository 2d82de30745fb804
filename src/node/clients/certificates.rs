//! The certificate that this node shows its clients: issued from the network's CA and renewed in memory, or the operator's
//! own, read again when its files change. A bad file is warned of, and the certificate before it stays.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Read;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::{Duration, SystemTime};

use distkv_tls::pem::PEM_BYTES_MAX;
use distkv_tls::server::ClientRoots;
use distkv_tls::{CaHash, Clock, Identity, ServerTls, pem};
use event_listener::Event;
use parking_lot::Mutex;

use crate::model::host_port::HostPort;
use crate::node::config::TlsConfig;
use crate::node::error::NodeError;
use crate::node::membership::identity::Myself;
use crate::node::monitoring::certificate::{ExpiryWatch, warning};
use crate::rt;
use crate::server::TlsSettings;

/// A certificate of the network's CA is renewed at this age, in seconds: it is valid for 30 days.
const RENEW_AFTER_SECS: u64 = 24 * 3_600;
/// It is also renewed if it was issued so long after the present time: the clock was set back. Certificates are valid from
/// an hour before they are issued.
const AHEAD_SECS: u64 = 600;
/// The time between two looks at the files, and at the node's names.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Of a machine with more addresses, the rest is not in its certificate; `--cert-name` puts it there.
const OWN_ADDRESSES_MAX: usize = 64;

/// See the module.
pub(in crate::node) struct Certificates {
    config: TlsConfig,
    me: Arc<Myself>,
    server: Arc<ServerTls>,
    shown: Mutex<Shown>,
    expiry: Mutex<ExpiryWatch>,
    /// Someone asks for a look at once.
    reload: Event,
}

/// What the present certificate was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Shown {
    names: Vec<String>,
    issued_at: u64,
    files: Vec<Option<(SystemTime, u64)>>,
}

impl Certificates {
    /// Reads or issues the first one.
    ///
    /// # Errors
    /// [`NodeError::Certificate`]: a node does not start with a bad file.
    pub(in crate::node) fn open(
        config: &TlsConfig,
        me: &Arc<Myself>,
    ) -> Result<Arc<Self>, NodeError> {
        let shown = Shown::now(config, me);
        let (identity, clients) = make(config, &shown).map_err(NodeError::Certificate)?;
        let clock = Clock::new(now_secs);
        let server = ServerTls::new(&identity, &clients, clock)
            .map_err(|error| NodeError::Certificate(error.to_string()))?;
        Ok(Arc::new(Self {
            config: config.clone(),
            me: Arc::clone(me),
            server: Arc::new(server),
            shown: Mutex::new(shown),
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

    /// Has the files read again, changed or not.
    pub(in crate::node) fn reload(&self) {
        *self.shown.lock() = Shown::default();
        self.reload.notify(usize::MAX);
    }

    /// One line for people, if the certificate expires soon or has expired.
    pub(in crate::node) fn warning(&self) -> Option<String> {
        self.server.period().and_then(|period| warning(&name(&self.config), period, now_secs()))
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
        let now = Shown::now(&self.config, &self.me);
        if !now.is_due(&self.shown.lock(), self.config.own.is_some()) {
            return;
        }
        let made = make(&self.config, &now);
        let shown = made.and_then(|(identity, clients)| {
            self.server.replace(&identity, &clients).map_err(|error| error.to_string())
        });
        match shown {
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
                tracing::warn!("the certificate for clients stays as it is: {why}");
            }
        }
        // A bad file is looked at again when it has changed.
        *self.shown.lock() = now;
    }
}

impl Shown {
    fn now(config: &TlsConfig, me: &Myself) -> Self {
        let own = config.own.iter().flat_map(|(cert, key)| [cert, key]);
        let stamp = |path: &Path| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.modified().ok()?, metadata.len()))
        };
        let files = own.chain(&config.client_ca).map(|path| stamp(path)).collect();
        let names = if config.own.is_some() { Vec::new() } else { names_of(config, me) };
        Self { names, issued_at: now_secs(), files }
    }

    /// Whether another certificate must be made than what was shown before.
    fn is_due(&self, before: &Self, is_own: bool) -> bool {
        let age = self.issued_at.saturating_sub(before.issued_at);
        // The clock was set back: a certificate of later days is not valid yet.
        let ahead = before.issued_at.saturating_sub(self.issued_at);
        let is_old = age >= RENEW_AFTER_SECS || ahead >= AHEAD_SECS;
        (!is_own && is_old) || before.names != self.names || before.files != self.files
    }
}

/// What the certificate is called in warnings.
fn name(config: &TlsConfig) -> String {
    let own = config.own.as_ref().map(|(cert, _)| cert.display().to_string());
    own.unwrap_or_else(|| String::from("which this node makes"))
}

/// Whether a node could begin with these files; and a warning of a certificate that expires soon.
///
/// # Errors
/// What is wrong with one of them.
pub(in crate::node) fn check(config: &TlsConfig) -> Result<Option<String>, String> {
    let shown = Shown { names: vec![String::from("localhost")], ..Shown::default() };
    let (identity, clients) = make(config, &shown)?;
    let clock = Clock::new(now_secs);
    let server = ServerTls::new(&identity, &clients, clock).map_err(|error| error.to_string())?;
    Ok(server.period().and_then(|period| warning(&name(config), period, now_secs())))
}

/// Looks after the certificate until the node has ended.
pub(in crate::node) async fn look_after(certificates: Weak<Certificates>) {
    // The first look is soon, for what is to be said of the certificate at once.
    let mut interval = Duration::ZERO;
    loop {
        let Some(listener) = certificates.upgrade().map(|own| own.reload.listen()) else { return };
        let _ = rt::timeout(interval, listener).await;
        interval = LOOK_INTERVAL;
        let Some(own) = certificates.upgrade() else { return };
        // Files are read, and a key is made.
        rt::spawn_blocking(move || own.look()).await;
    }
}

/// The certificate, and whose certificates log clients in.
fn make(config: &TlsConfig, shown: &Shown) -> Result<(Identity, ClientRoots), String> {
    let now = now_secs();
    let identity = match (&config.own, &config.ca) {
        (Some((cert, key)), _) => {
            let identity = pem::identity(&read(cert)?, &read(key)?, now);
            identity
                .map_err(|error| format!("{} and {}: {error}", cert.display(), key.display()))?
        }
        (None, Some(ca)) => {
            let names: Vec<&str> = shown.names.iter().map(String::as_str).collect();
            ca.issue_node(&names, now).map_err(|error| error.to_string())?
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
    File::open(path).map_err(failed)?.take(most).read_to_end(&mut bytes).map_err(failed)?;
    Ok(bytes)
}

/// Whether a host stands for all of this machine's addresses, so that nobody connects to it.
fn is_wildcard(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified())
}

/// By which names and addresses clients may connect: those that were given, the host's, the advertised one, and this
/// machine's own.
fn names_of(config: &TlsConfig, me: &Myself) -> Vec<String> {
    let mut names = config.names.clone();
    if let Ok(advertised) = HostPort::parse(&me.client_text(None), Some(0)) {
        names.extend(Some(advertised.host).filter(|host| !is_wildcard(host)));
    }
    names.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
    if me.client.ip().is_unspecified() {
        names.extend(own_addresses().into_iter().map(|ip| ip.to_string()));
    } else {
        names.push(me.client.ip().to_canonical().to_string());
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
    names
}

/// The addresses of this machine at which others may reach it, sorted; without those that are of one link only, which need the
/// link's name with them. A machine whose interfaces cannot be listed has none.
fn own_addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let is_of_link = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    let addresses = interfaces.into_iter().filter(|one| !one.is_loopback()).map(|one| one.ip());
    // Another order would be another certificate.
    let sorted: BTreeSet<IpAddr> = addresses.filter(|ip| !is_of_link(ip)).collect();
    sorted.into_iter().take(OWN_ADDRESSES_MAX).collect()
}

fn now_secs() -> u64 {
    rt::wall_clock_ms() / 1_000
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn own_addresses_can_be_reached_from_elsewhere() {
        for ip in own_addresses() {
            assert!(!ip.is_loopback() && !ip.is_unspecified() && !ip.is_multicast(), "{ip}");
            // They are this machine's: only its own can be bound.
            UdpSocket::bind((ip, 0)).unwrap();
        }
    }

    #[test]
    fn a_certificate_is_renewed_every_day_and_when_the_clock_was_set_back() {
        const NOW: u64 = 1_800_000_000;
        let at = |issued_at| Shown { names: vec!["n1".into()], issued_at, files: Vec::new() };
        for (issued_at, is_due) in [
            (NOW, false),
            (NOW - RENEW_AFTER_SECS + 1, false),
            (NOW - RENEW_AFTER_SECS, true),
            (NOW + AHEAD_SECS - 1, false),
            (NOW + AHEAD_SECS, true),
            (NOW + 365 * 86_400, true),
        ] {
            assert_eq!(at(NOW).is_due(&at(issued_at), false), is_due, "{issued_at}");
            assert!(!at(NOW).is_due(&at(issued_at), true), "the operator renews own ones");
        }
        let other = Shown { names: vec!["n2".into()], ..at(NOW) };
        assert!(other.is_due(&at(NOW), false));
    }
}
