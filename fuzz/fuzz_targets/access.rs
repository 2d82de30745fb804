//! Whatever is stored as users, access lists and types, and whatever a client logs in with: it must be read
//! or refused, and what cannot be read must grant nothing.
#![no_main]

use std::sync::Arc;

use distkv_model::ids::{Event, NodeIndex, Tick};
use distkv_model::path::Path;
use distkv_model::value::{SkipLimits, Value, skip_value};
use distkv_access::acl::{Acl, Letters, Rights, Walk};
use distkv_access::dh::{BoxKey, Group, exchange};
use distkv_access::secret::PasswordHash;
use distkv_access::types::Types;
use distkv_access::users::{Directory, Record, Role};
use libfuzzer_sys::fuzz_target;

/// The value at the front, and what follows it.
fn split(data: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = skip_value(data, SkipLimits::VALUE).ok()?;
    data.split_at_checked(end)
}

fuzz_target!(|data: &[u8]| {
    let event = Event { node: NodeIndex(0), tick: Tick::new(1).expect("a tick") };
    // Paths and values in turn.
    let mut entries = Vec::new();
    let mut rest = data;
    while let Some((path, behind)) = split(rest) {
        let Some((value, behind)) = split(behind) else { break };
        rest = behind;
        if let Ok(path) = Path::from_msgpack_value(path) {
            entries.push((path, value));
        }
    }
    let nil = Path::system_root();
    let below_nil: Vec<_> =
        entries.iter().filter_map(|(path, value)| Some((nil.join(path).ok()?, *value))).collect();

    let directory =
        Directory::build(1, below_nil.iter().map(|(path, value)| (path.clone(), *value, event)));
    for user in directory.users() {
        let rights = directory.rights_of(user);
        assert!(user.role == Role::Admin || rights.letters(b"\xc0\xa4auth") == Letters::NONE);
    }
    if let Ok(acl) = Acl::build(entries.iter().map(|(path, value)| (path.clone(), *value))) {
        let rights = Arc::new(Rights::of(acl));
        let mut walk = Walk::new(Arc::clone(&rights));
        for (path, _) in &entries {
            walk.go(path.as_bytes());
            assert_eq!(walk.letters(), rights.letters(path.as_bytes()));
            let _ = rights.explain(path.as_bytes());
        }
    }
    let types = Types::build(below_nil.iter().cloned(), &Types::default());
    for (path, value) in entries.iter().chain(&below_nil) {
        let _ = types.check(path.as_bytes(), value);
        let _ = types.check_change(path, value);
        if let Ok(record) = Record::read(value) {
            let written = record.write().expect("what was read can be written");
            assert!(Value::check(written.as_bytes()).is_ok());
        }
    }
    let _ = PasswordHash::read(&String::from_utf8_lossy(data));
    let _ = BoxKey::new([1; 32]).open(data);
    // An exchange takes ms, so not for all.
    if data.len() < 4 {
        let _ = exchange(Group::Five, data, &[1; 40]);
    }
});
