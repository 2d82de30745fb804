//! What a connection's requests are to the audit log: who asks, for what, and what came of it.

use std::net::IpAddr;
use std::sync::Arc;

use super::Audit;
use super::record::{Event, Outcome, Record};
use crate::model::meta::{AUTH_PATH, Family};
use crate::model::path::Path;
use crate::protocol::client::auth::{AuthRequest, Login, UserChange};
use crate::protocol::client::request::KeyChange;
use crate::protocol::client::{Action, ClientError, ErrorCode, Request};
use crate::server::access::Identity;
use crate::server::access::authorise::{Denied, Target};
use crate::server::access::methods::KEY;

/// Of one connection, as long as its client is the same. Clones are one.
#[derive(Clone)]
pub(in crate::server) struct Witness(Arc<Inner>);

struct Inner {
    audit: Audit,
    identity: Identity,
    address: IpAddr,
}

impl Witness {
    pub(in crate::server) fn new(audit: Audit, identity: Identity, address: IpAddr) -> Self {
        Self(Arc::new(Inner { audit, identity, address: address.to_canonical() }))
    }

    /// For the same client, which has shown who it is.
    pub(in crate::server) fn of(&self, identity: Identity) -> Self {
        Self::new(self.0.audit.clone(), identity, self.0.address)
    }

    fn record(&self, event: Event, outcome: Outcome) -> Record {
        let record = Record { address: Some(self.0.address), ..Record::new(event, outcome) };
        match &self.0.identity {
            Identity::Unknown => record,
            Identity::KeyHolder => record.method(KEY),
            Identity::User { method, name, .. } => record.user(name).method(method),
        }
    }

    /// The hook that every request passes has refused this.
    pub(in crate::server) fn denied(&self, denied: &Denied, action: Action, target: Target<'_>) {
        let why = match denied {
            Denied::LoginNeeded => "no login",
            Denied::Role { .. } => "role",
            Denied::Path { .. } | Denied::Listing { .. } => "access list",
        };
        let path = match target {
            Target::Node => None,
            Target::Path(path) | Target::Topic(path) => Path::from_canonical(path).ok(),
        };
        self.refused(action, why, path.as_ref());
    }

    /// A request of a client that has not logged in was refused unseen.
    pub(in crate::server) fn turned_away(&self, action: Action) {
        self.refused(action, "no login", None);
    }

    /// Something was refused for what is there: a change by a client that may only make entries, or only change them.
    pub(in crate::server) fn refused_at(&self, action: Action, path: &Path) {
        self.refused(action, "access list", Some(path));
    }

    /// A stream, or a deletion of a subtree, has ended because the client may not do all of it (any more).
    pub(in crate::server) fn cut_short(&self) {
        let record = self.record(Event::Denied, Outcome::Refused);
        self.note_refused(record.detail("access list, before its end"));
    }

    /// The connection is closed because its client may do nothing any more.
    pub(in crate::server) fn shut_out(&self) {
        self.0.audit.note_login(self.record(Event::Login, Outcome::Ended).detail("shut out"));
    }

    fn refused(&self, action: Action, why: &str, path: Option<&Path>) {
        let record = self.record(Event::Denied, Outcome::Refused).detail(why);
        let record = Record { action: Some(action.name()), ..record };
        let record = match path {
            Some(path) => record.target(&path.to_string()),
            None => record,
        };
        self.note_refused(record);
    }

    fn note_refused(&self, record: Record) {
        match self.0.identity {
            Identity::Unknown => self.0.audit.note_stranger(record),
            Identity::KeyHolder | Identity::User { .. } => self.0.audit.note_repeated(record),
        }
    }

    /// The client is the user whom its certificate names.
    pub(in crate::server) fn certified(&self, user: &str) {
        let record = self.record(Event::Login, Outcome::Accepted);
        self.0.audit.note_login(record.user(user).method("certificate"));
    }

    /// A client was closed before it could say anything: too many that must log in have not.
    pub(in crate::server) fn crowded_out(&self, error: &ClientError) {
        let record = self.record(Event::Login, Outcome::Refused).detail(error.code.word());
        self.0.audit.note_stranger(record);
    }

    /// An entry at a whole path (canonical bytes) was changed. Of those that are not below nil, nothing is said.
    pub(in crate::server) fn changed(&self, action: Action, path: &[u8]) {
        let Some(event) = event_of(path) else { return };
        let record = self.record(event, Outcome::Done);
        let record = Record { action: Some(action.name()), ..record };
        let path = Path::from_canonical(path).map(|path| path.to_string()).unwrap_or_default();
        self.0.audit.note(record.target(&path));
    }

    /// A request was carried out, or refused with an error. `key`: the id of the key that it brings, if it brings one.
    /// `is_begun`: what comes of it is not known yet.
    pub(in crate::server) fn answered(
        &self,
        action: Action,
        request: &Request<'_>,
        key: Option<&str>,
        result: Result<bool, &ClientError>,
    ) {
        if let Request::Auth(AuthRequest::Login(login)) = request {
            return self.logged_in(login, result.err());
        }
        let Some(asked) = asked(request) else { return };
        // The hook has told of it.
        let is_told = |error: &ClientError| {
            let tells_itself =
                matches!(action, Action::AuthSet | Action::AuthDisconnect | Action::Restore);
            error.code == ErrorCode::Denied && !tells_itself
        };
        let (outcome, detail) = match result {
            Ok(true) => (Outcome::Begun, asked.detail),
            Ok(false) => (Outcome::Done, asked.detail),
            Err(error) if is_told(error) => return,
            Err(error) => (Outcome::Refused, Some(error.code.word().to_owned())),
        };
        let mut record = self.record(asked.event, outcome);
        record.action = Some(action.name());
        if let Some(target) = asked.target.or(key) {
            record = record.target(target);
        }
        if let Some(detail) = detail {
            record = record.detail(&detail);
        }
        if outcome == Outcome::Refused {
            self.note_refused(record);
        } else if asked.is_frequent || self.is_own_secret(request) {
            self.0.audit.note_repeated(record);
        } else {
            self.0.audit.note(record);
        }
    }

    /// Whether the request is a user's own new secret, or the end of its own connections, which needs no right: those that are
    /// alike are counted.
    fn is_own_secret(&self, request: &Request<'_>) -> bool {
        let Request::Auth(AuthRequest::Set(change)) = request else { return false };
        let is_secret_only = change.acl.is_none() && change.role.is_none();
        is_secret_only && self.0.identity.is_named(change.method, change.user)
    }

    /// All of an upload has come, and was taken in or refused. `node`: whose snapshot it is.
    pub(in crate::server) fn restored(
        &self,
        node: Option<&str>,
        result: Result<&str, &ClientError>,
    ) {
        let (outcome, detail) = match result {
            Ok(detail) => (Outcome::Done, detail),
            Err(error) => (Outcome::Refused, error.code.word()),
        };
        let record = self.record(Event::Admin, outcome).detail(detail);
        let record = Record { action: Some(Action::Restore.name()), ..record };
        self.0.audit.note(node.into_iter().fold(record, Record::target));
    }

    /// Also of a client that has logged in already: it has shown a right secret, perhaps another user's.
    fn logged_in(&self, login: &Login<'_>, error: Option<&ClientError>) {
        let record = |outcome| {
            let address = Some(self.0.address);
            Record { address, ..Record::new(Event::Login, outcome) }.method(login.method)
        };
        let user = Some(login.user).filter(|_| login.method != KEY);
        match error {
            None => {
                let record = user.into_iter().fold(record(Outcome::Accepted), Record::user);
                self.0.audit.note_login(record);
            }
            Some(error) => {
                let record = user.into_iter().fold(record(Outcome::Refused), Record::claimed);
                self.0.audit.note_stranger(record.detail(error.code.word()));
            }
        }
    }
}

/// What a change at a whole path is about; none for the users' own data.
fn event_of(path: &[u8]) -> Option<Event> {
    Some(match Family::of(path) {
        Some(Family::Auth) if path == AUTH_PATH => Event::Auth,
        Some(Family::Auth) => Event::User,
        Some(Family::Acl) => Event::Acl,
        Some(Family::Type | Family::Match | Family::Codec | Family::Conv) => Event::Type,
        None if Path::from_canonical(path).is_ok_and(|path| path.is_system()) => Event::Admin,
        None => return None,
    })
}

/// What an action is to the log.
struct Asked<'a> {
    event: Event,
    target: Option<&'a str>,
    detail: Option<String>,
    /// Programs do it thousands of times.
    is_frequent: bool,
}

/// None for what is not recorded: data, and looking at things.
fn asked<'a>(request: &Request<'a>) -> Option<Asked<'a>> {
    let admin = |target| Asked { event: Event::Admin, target, detail: None, is_frequent: false };
    Some(match request {
        Request::Auth(AuthRequest::Set(change)) => Asked {
            event: Event::User,
            target: Some(change.user),
            detail: Some(describe(change)),
            is_frequent: false,
        },
        Request::Auth(AuthRequest::Delete { method, user, .. }) => Asked {
            event: Event::User,
            target: Some(user),
            detail: Some(format!("method {method}, removed")),
            is_frequent: false,
        },
        Request::Auth(AuthRequest::SetMethod { method, grace_ms, .. }) => Asked {
            event: Event::Auth,
            target: None,
            detail: Some(match (method, grace_ms) {
                (None, _) => "off".to_owned(),
                (Some(method), None) => format!("on, method {method}"),
                (Some(method), Some(ms)) => format!("on, method {method}, grace {} s", ms / 1_000),
            }),
            is_frequent: false,
        },
        Request::ChangeKeys(change) => {
            let (step, id) = match change {
                // Of that, only the node can tell the id.
                KeyChange::Add { .. } => ("add", None),
                KeyChange::Use { id, .. } => ("use", Some(*id)),
                KeyChange::Remove { id, .. } => ("remove", Some(*id)),
            };
            let detail = Some(format!("{step}, over the network"));
            Asked { event: Event::Key, target: id, detail, is_frequent: false }
        }
        Request::KillNode { node } | Request::ForgetMember { node } => admin(Some(node)),
        // Its other pieces are of the same.
        Request::Restore(piece) if !piece.start => return None,
        Request::Restore(_) | Request::GetSnapshot(_) | Request::Forge | Request::LogStop => {
            admin(None)
        }
        Request::Leave { for_good_ms } => {
            Asked { detail: for_good_ms.map(|_| "for good".to_owned()), ..admin(None) }
        }
        Request::Update(_) => Asked { is_frequent: true, ..admin(None) },
        Request::Save { file, .. } | Request::LogStart { file, .. } => admin(Some(file)),
        Request::Log { file, .. } | Request::Snapshot { file } => admin(*file),
        _ => return None,
    })
}

/// What is changed of a user; never the secret itself.
fn describe(change: &UserChange<'_>) -> String {
    let mut text = format!("method {}", change.method);
    if change.secret.is_some() || change.sealed.is_some() {
        text.push_str(", new secret");
    } else if change.acl.is_none() && change.role.is_none() && !change.disconnects {
        text.push_str(", new secret made by the node");
    }
    if change.disconnects {
        text.push_str(", connections ended");
    }
    for (what, name) in [("role", change.role), ("access list", change.acl)] {
        if let Some(name) = name {
            text.push_str(&format!(", {what} {name}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::repeats::STRANGER_KINDS_MAX;
    use super::*;
    use crate::protocol::client::chain::ChainField;

    fn witness() -> (Audit, Witness) {
        let audit = Audit::default();
        let (method, name) = ("password".into(), "amy".into());
        let amy = Identity::User { method, name, after: None, disconnect: None };
        let witness = Witness::new(audit.clone(), amy, "::ffff:10.0.0.7".parse().unwrap());
        (audit, witness)
    }

    fn change(user: &str) -> UserChange<'_> {
        UserChange {
            method: "password",
            user,
            chain: ChainField::Any,
            sealed: None,
            secret: Some(b"geheim"),
            acl: Some("lamps"),
            role: None,
            force: false,
            is_dialogue: false,
            disconnects: false,
            confirm_ms: None,
        }
    }

    fn login(user: &str) -> Login<'_> {
        Login {
            method: "password",
            user,
            sealed: None,
            secret: Some(b"geheim"),
            nonce: None,
            proof: Some(b"geheim"),
        }
    }

    fn records(audit: &Audit) -> Vec<Record> {
        audit.next(Duration::ZERO).entries.into_iter().map(|entry| entry.record).collect()
    }

    #[test]
    fn a_login_is_told_with_whom_the_client_says_it_is_and_never_with_its_secret() {
        let (audit, witness) = witness();
        let request = Request::Auth(AuthRequest::Login(login("joe")));
        let error = ClientError::new(ErrorCode::AuthFailed, "geheim");
        witness.answered(Action::Auth, &request, None, Err(&error));
        witness.answered(Action::Auth, &request, None, Ok(false));
        let records = records(&audit);
        let outcomes: Vec<Outcome> = records.iter().map(|record| record.outcome).collect();
        assert_eq!(outcomes, [Outcome::Refused, Outcome::Accepted]);
        for record in &records {
            assert_eq!(record.user.as_deref(), Some("joe"));
            assert_eq!(record.address, Some("10.0.0.7".parse().unwrap()));
            assert!(!serde_json::to_string(record).unwrap().contains("geheim"), "{record:?}");
        }
        assert_eq!(records[0].detail.as_deref(), Some("auth_failed"));
    }

    #[test]
    fn refused_logins_with_ever_new_names_fill_no_disk_and_hide_nothing_of_who_is_logged_in() {
        let (audit, witness) = witness();
        let error = ClientError::new(ErrorCode::AuthFailed, "geheim");
        let stranger = witness.of(Identity::Unknown);
        let mut lines = 0;
        for number in 0..2_000 {
            let name = number.to_string();
            let request = Request::Auth(AuthRequest::Login(login(&name)));
            for witness in [&stranger, &witness] {
                witness.answered(Action::Auth, &request, None, Err(&error));
            }
            stranger.turned_away(Action::Status);
            lines += records(&audit).len();
        }
        // One of each that are told apart, and one of all others of a sort.
        assert_eq!(lines, STRANGER_KINDS_MAX + 1);
        witness.refused(Action::Status, "role", None);
        assert_eq!(records(&audit).pop().unwrap().user.as_deref(), Some("amy"));
    }

    #[test]
    fn who_logs_in_again_and_again_is_one_line_and_a_count() {
        let (audit, witness) = witness();
        for _ in 0..2_000 {
            witness.answered(
                Action::Auth,
                &Request::Auth(AuthRequest::Login(login("amy"))),
                None,
                Ok(false),
            );
            witness.certified("amy");
            witness.shut_out();
        }
        let told: Vec<_> = records(&audit).into_iter().map(|r| (r.outcome, r.method)).collect();
        let [password, certificate] = ["password", "certificate"].map(|by| Some(by.into()));
        let expected = [
            (Outcome::Accepted, password.clone()),
            (Outcome::Accepted, certificate),
            (Outcome::Ended, password),
        ];
        assert_eq!(told, expected);
        audit.close(None);
        let counts: Vec<u64> = audit.next(Duration::ZERO).entries.iter().map(|e| e.count).collect();
        assert_eq!(counts, [1_999; 3]);
    }

    #[test]
    fn who_changes_its_own_secret_again_and_again_is_one_line_and_a_count() {
        let (audit, witness) = witness();
        let set = |user| UserChange { acl: None, ..change(user) };
        let told = |user| {
            for _ in 0..20 {
                witness.answered(
                    Action::AuthSet,
                    &Request::Auth(AuthRequest::Set(set(user))),
                    None,
                    Ok(false),
                );
            }
            records(&audit).len()
        };
        // What an admin does to others is told one by one.
        assert_eq!((told("amy"), told("joe")), (1, 20));
    }

    #[test]
    fn a_change_of_a_user_is_told_without_its_secret() {
        let (audit, witness) = witness();
        let disconnects =
            |secret| UserChange { acl: None, disconnects: true, secret, ..change("joe") };
        for (change, expected) in [
            (change("joe"), "method password, new secret, access list lamps"),
            (disconnects(None), "method password, connections ended"),
            (disconnects(Some(b"geheim")), "method password, new secret, connections ended"),
        ] {
            let action = change.action();
            let request = Request::Auth(AuthRequest::Set(change));
            witness.answered(action, &request, None, Ok(false));
            let record = records(&audit).pop().unwrap();
            assert_eq!(record.user.as_deref(), Some("amy"));
            assert_eq!(record.target.as_deref(), Some("joe"));
            assert_eq!(record.action, Some(action.name()));
            assert_eq!(record.detail.as_deref(), Some(expected));
        }
    }

    #[test]
    fn of_changes_only_those_below_nil_are_told() {
        let (audit, witness) = witness();
        let path = |text: &str| text.parse::<Path>().unwrap();
        for at in
            ["site.lamp", ":n.auth", ":n.auth.token.user.joe", ":n.acl.a.#", ":n.match.a", ":n.x"]
        {
            witness.changed(Action::SetInternal, path(at).as_bytes());
        }
        let told: Vec<(Event, String)> = records(&audit)
            .into_iter()
            .map(|record| (record.event, record.target.unwrap().into()))
            .collect();
        let expected = [
            (Event::Auth, ":n.auth"),
            (Event::User, ":n.auth.token.user.joe"),
            (Event::Acl, ":n.acl.a.#"),
            (Event::Type, ":n.match.a"),
            (Event::Admin, ":n.x"),
        ];
        assert_eq!(told, expected.map(|(event, path)| (event, path.to_owned())));
    }

    #[test]
    fn what_the_hook_has_told_of_is_not_told_twice_and_data_not_at_all() {
        let (audit, witness) = witness();
        let denied = ClientError::new(ErrorCode::Denied, "");
        witness.answered(
            Action::ForgetMember,
            &Request::ForgetMember { node: "n3" },
            None,
            Err(&denied),
        );
        witness.answered(Action::Status, &Request::Status, None, Ok(false));
        assert!(records(&audit).is_empty());
        let error = ClientError::new(ErrorCode::NotFound, "");
        witness.answered(
            Action::ForgetMember,
            &Request::ForgetMember { node: "n3" },
            None,
            Err(&error),
        );
        witness.answered(
            Action::ForgetMember,
            &Request::ForgetMember { node: "n3" },
            None,
            Ok(false),
        );
        let told = records(&audit);
        let told: Vec<_> = told.iter().map(|r| (r.outcome, r.target.as_deref())).collect();
        assert_eq!(told, [(Outcome::Refused, Some("n3")), (Outcome::Done, Some("n3"))]);
    }
}
