//! What the original stores below nil to control its servers: authorisation, access lists, type
//! checks and conversions. Users and access lists are obeyed; the others are stored and replicated, and must
//! be recognised.

use std::fmt;

use crate::path::Element;
use crate::path::bytes::elements;
use crate::value::{Reader, write_map_len};

/// The path of the entry that switches authorisation on, `:n.auth`, in canonical bytes.
pub const AUTH_PATH: &[u8] = b"\xc0\xa4auth";
/// The element below [`AUTH_PATH`] that has the users that were removed.
pub const REVOKED: &str = "revoked";
/// Methods by which clients can log in somewhere: the ones that this version has.
pub const METHODS: [&str; 4] = ["password", "token", "root", "_test"];
/// What is shown to clients instead of a value with a secret: an empty map.
const NO_SECRET: &[u8] = b"\x80";
/// Characters of a method's name that messages repeat.
const METHOD_CHARS: usize = 64;

/// A subtree below nil with a meaning for servers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Family {
    /// `:n.auth`: users, and which authentication method is in force.
    Auth,
    /// `:n.acl`: access lists.
    Acl,
    /// `:n.type`: type checks.
    Type,
    /// `:n.match`: which entries have which type.
    Match,
    /// `:n.codec`: conversions of values.
    Codec,
    /// `:n.conv`: which entries are converted how.
    Conv,
}

impl Family {
    /// All of them.
    pub(crate) const ALL: [Self; 6] =
        [Self::Auth, Self::Acl, Self::Type, Self::Match, Self::Codec, Self::Conv];

    /// The family that a path (canonical bytes) belongs to: its top, or anything below that.
    #[must_use]
    pub fn of(path: &[u8]) -> Option<Self> {
        // Nearly no path begins with nil, and this is checked for every write.
        if path.first() != Some(&0xc0) {
            return None;
        }
        let mut elements = elements(path);
        let (Some(Element::Nil), Some(Element::Str(name))) = (elements.next(), elements.next())
        else {
            return None;
        };
        Self::ALL.into_iter().find(|family| family.name() == name)
    }

    /// The element below nil.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Acl => "acl",
            Self::Type => "type",
            Self::Match => "match",
            Self::Codec => "codec",
            Self::Conv => "conv",
        }
    }

    /// What its entries are for, in words.
    #[must_use]
    pub fn purpose(self) -> &'static str {
        match self {
            Self::Auth => "authorisation",
            Self::Acl => "access lists",
            Self::Type | Self::Match => "type checks",
            Self::Codec | Self::Conv => "conversions of values",
        }
    }
}

/// Whether the entry at a path (canonical bytes) may hold a user's secret, in whatever form: no client is
/// ever shown its value. All below [`AUTH_PATH`] counts, but for what is known to have none: the names of
/// access lists, and of users that were removed.
#[must_use]
pub fn is_secret(path: &[u8]) -> bool {
    // Nearly no path begins with nil, and this is asked of every entry that is sent.
    if !path.starts_with(AUTH_PATH) || path.len() == AUTH_PATH.len() {
        return false;
    }
    let mut below = elements(path).skip(2);
    let first = below.next();
    let rest = [below.next(), below.next(), below.next(), below.next()];
    let is_revocation =
        matches!((first, rest), (Some(Element::Str(REVOKED)), [Some(_), Some(_), None, None]));
    let is_list = matches!(
        rest,
        [Some(Element::Str("user")), Some(_), Some(Element::Str("acl" | "conv")), None]
    );
    !is_revocation && !is_list
}

/// What a client may see of the value at a path (canonical bytes): an empty map for one that
/// [may be secret](is_secret).
#[must_use]
pub fn shown<'v>(path: &[u8], value: &'v [u8]) -> &'v [u8] {
    if is_secret(path) { NO_SECRET } else { value }
}

/// The field of the value at [`AUTH_PATH`] that [`grace_end`] reads; the original does not know it.
pub const GRACE: &str = "grace";

/// How clients must log in, as the data says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Login {
    /// By this method; a long name is cut.
    Method(Box<str>),
    /// The entry has a form that this version does not know, so it may mean anything.
    Unreadable,
}

impl Login {
    /// The method's name, as clients receive it.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Method(name) => name,
            Self::Unreadable => "unreadable",
        }
    }
}

impl Login {
    /// Whether this version can log clients in that way.
    #[must_use]
    pub fn is_known(&self) -> bool {
        matches!(self, Self::Method(name) if METHODS.contains(&&**name))
    }

    /// Whether users of a method may log in where this is in force.
    #[must_use]
    pub fn admits(&self, method: &str) -> bool {
        let Self::Method(name) = self else { return false };
        // Clients that know passwords only send tokens as such.
        let is_same = **name == *method || (**name == *"password" && method == "token");
        is_same && METHODS.contains(&method)
    }
}

impl fmt::Display for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // The name comes from outside: no control characters.
            Self::Method(name) => write!(f, "method {name:?}"),
            Self::Unreadable => f.write_str("in a form that this version cannot read"),
        }
    }
}

/// What the value at [`AUTH_PATH`] (one checked MessagePack value) demands; none: no login is
/// needed.
///
/// The original serves everybody if the value is not a map, or if the method in force has no users.
/// Here both need a login: the data shows that somebody wanted access restricted.
#[must_use]
pub fn login(value: &[u8]) -> Option<Login> {
    read_login(value).unwrap_or(Some(Login::Unreadable))
}

/// Until when the value at [`AUTH_PATH`] lets clients go on without the login that it demands, in ms since 1970; none:
/// it does not.
#[must_use]
pub fn grace_end(value: &[u8]) -> Option<u64> {
    let mut reader = Reader::new(value);
    let mut end = None;
    for _ in 0..reader.read_map_len().ok()? {
        let key = reader.read_raw().ok()?;
        let value = reader.read_raw().ok()?;
        if Reader::new(key).read_str_bytes() == Ok(GRACE.as_bytes()) {
            end = Some(Reader::new(value).read_u64().ok()?);
        }
    }
    end
}

/// The value at [`AUTH_PATH`] without that time; none where there is no such time in it.
#[must_use]
pub fn without_grace(value: &[u8]) -> Option<Vec<u8>> {
    grace_end(value)?;
    let mut reader = Reader::new(value);
    let mut kept = Vec::new();
    for _ in 0..reader.read_map_len().ok()? {
        let (key, value) = (reader.read_raw().ok()?, reader.read_raw().ok()?);
        if Reader::new(key).read_str_bytes() != Ok(GRACE.as_bytes()) {
            kept.push([key, value].concat());
        }
    }
    let mut out = Vec::new();
    write_map_len(kept.len(), &mut out);
    kept.iter().for_each(|pair| out.extend_from_slice(pair));
    Some(out)
}

/// None for a value of another form.
fn read_login(value: &[u8]) -> Option<Option<Login>> {
    if value == [0xc0] {
        return Some(None);
    }
    let mut reader = Reader::new(value);
    let mut login = None;
    for _ in 0..reader.read_map_len().ok()? {
        let key = reader.read_raw().ok()?;
        let value = reader.read_raw().ok()?;
        if Reader::new(key).read_str_bytes() == Ok(b"current") && value != [0xc0] {
            let name = Reader::new(value).read_str().ok()?;
            login = Some(Login::Method(name.chars().take(METHOD_CHARS).collect()));
        }
    }
    Some(login)
}

#[cfg(test)]
mod tests {
    use crate::meta::*;
    use crate::path::Path;

    fn path(text: &str) -> Path {
        text.parse().unwrap()
    }

    #[test]
    fn the_entry_that_switches_authorisation_on_is_where_the_original_has_it() {
        assert_eq!(path(":n.auth").as_bytes(), AUTH_PATH);
    }

    #[test]
    fn until_when_a_login_is_not_needed_yet_is_read_where_it_is_a_number() {
        let end = |value: &[u8]| grace_end(value);
        assert_eq!(end(b"\x82\xa7current\xa4root\xa5grace\xcd\x03\xe8"), Some(1_000));
        assert_eq!(end(b"\x81\xa7current\xa4root"), None);
        assert_eq!(end(b"\x81\xa5grace\xa1x"), None);
        let without = without_grace(b"\x82\xa7current\xa4root\xa5grace\xcd\x03\xe8");
        assert_eq!(without.as_deref(), Some(&b"\x81\xa7current\xa4root"[..]));
        assert_eq!(without_grace(b"\x81\xa7current\xa4root"), None);
        assert_eq!(end(b"\xc0"), None);
        let login = login(b"\x82\xa7current\xa4root\xa5grace\xcd\x03\xe8");
        assert_eq!(login, Some(Login::Method("root".into())));
    }

    #[test]
    fn a_family_has_its_top_and_all_below_and_nothing_else() {
        for family in Family::ALL {
            let top = format!(":n.{}", family.name());
            assert_eq!(Family::of(path(&top).as_bytes()), Some(family));
            assert_eq!(Family::of(path(&format!("{top}.a.b")).as_bytes()), Some(family));
            assert_eq!(Family::of(path(family.name()).as_bytes()), None);
            assert_eq!(Family::of(path(&format!(":n.x.{}", family.name())).as_bytes()), None);
        }
        for other in [":", ":n", ":n.shards:1", ":n.authx", ":n:1"] {
            assert_eq!(Family::of(path(other).as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn whatever_may_hold_a_secret_is_not_shown() {
        let secret = [
            ":n.auth.password.user.joe",
            ":n.auth.password",
            ":n.auth.password.user",
            ":n.auth.password.user.joe.old",
            ":n.auth.password.user.joe.acl.old",
            ":n.auth.password.role.joe.acl",
            ":n.auth.revoked",
            ":n.auth.revoked.password",
            ":n.auth.revoked.password.joe.more",
            ":n.auth:1",
        ];
        for at in secret {
            assert_eq!(shown(path(at).as_bytes(), b"\xa1x"), b"\x80", "{at}");
        }
        let open = [
            ":n.auth",
            ":n.auth.password.user.joe.acl",
            ":n.auth.password.user.joe.conv",
            ":n.auth.revoked.password.joe",
            ":n.authx.password.user.joe",
            ":n.acl.x",
            "auth.password.user.joe",
            ":",
        ];
        for at in open {
            assert_eq!(shown(path(at).as_bytes(), b"\xa1x"), b"\xa1x", "{at}");
        }
    }

    #[test]
    fn a_login_is_needed_unless_the_entry_clearly_says_otherwise() {
        let method = |name: &str| Some(Login::Method(name.into()));
        let cases: [(&[u8], Option<Login>); 11] = [
            (b"\xc0", None),
            (b"\x80", None),
            (b"\x81\xa7current\xc0", None),
            (b"\x81\xa5other\xa1x", None),
            (b"\x81\xa7current\xa8password", method("password")),
            (b"\x82\xa1x\x92\x01\x02\xa7current\xa4root", method("root")),
            // Of two, one that needs a login is enough.
            (b"\x82\xa7current\xa4root\xa7current\xc0", method("root")),
            (b"\x81\xa7current\xc3", Some(Login::Unreadable)),
            (b"\x81\xa7current\xc4\x04root", Some(Login::Unreadable)),
            (b"\xa4root", Some(Login::Unreadable)),
            (b"\x91\xa7current", Some(Login::Unreadable)),
        ];
        for (value, expected) in cases {
            assert_eq!(login(value), expected, "{value:02x?}");
        }
        let long = [&b"\x81\xa7current\xda\x01\x00"[..], &[b'm'; 256]].concat();
        assert_eq!(login(&long).unwrap().to_string().len(), "method \"\"".len() + METHOD_CHARS);
    }
}
