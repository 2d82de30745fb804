//! `key cert`: what it writes is signed by the CA of the key file, and works.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use distkv_tls::{CaHash, pem};

use super::{Keys, program};
use crate::processes::PROGRAM;

fn mode(path: &str) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

#[test]
fn a_server_s_certificate_is_one_that_clients_of_the_ca_take() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let (server, ca) = (keys.path("proxy"), keys.path("ca"));
    let cert = |arguments: &[&str]| program(&[&["key", "cert", "--key", &key], arguments].concat());
    let (code, said) = cert(&[
        "--server",
        "127.0.0.1",
        "--server",
        "n1.example.org",
        "--to",
        &format!("{server}.key"),
    ]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = cert(&["--ca", "--to", &format!("{ca}.pem")]);
    assert_eq!(code, Some(0), "{said}");
    let files = [".pem", ".key"].map(|end| format!("{server}{end}"));
    assert_eq!(files.each_ref().map(|file| mode(file)), [0o644, 0o600]);
    assert!(!fs::exists(keys.path("ca.key")).unwrap(), "the CA's own key stays in the key file");
    let node = keys.run(
        "a",
        &["--cert", &files[0], "--cert-key", &files[1], "--client-plaintext", "none", "--insecure"],
    );
    let client = node.client.to_string();
    let ca_file = keys.path("ca.pem");
    let (code, ticket) = program(&["ticket", "new", &client, "--ca", &ca_file]);
    assert_eq!(code, Some(0), "{ticket}");
    let (code, said) = program(&["set", "a", "5", "--ticket", ticket.trim()]);
    assert_eq!(code, Some(0), "{said}");
    let (code, said) = program(&["get", "a", "--connect", &client]);
    assert_ne!(code, Some(0), "it speaks TLS only: {said}");
}

#[test]
fn a_user_s_certificate_has_its_name_and_nothing_is_replaced() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let to = keys.path("joe");
    let new = ["key", "cert", "joe", "--days", "30", "--key", &key, "--to", &to, "--json"];
    let (code, said) = program(&new);
    assert_eq!(code, Some(0), "{said}");
    let told: serde_json::Value = serde_json::from_str(&said).unwrap();
    let (cert, secret) = (format!("{to}.pem"), format!("{to}.key"));
    assert_eq!((told["name"].as_str(), told["certificate"].as_str()), (Some("joe"), Some(&*cert)));
    assert_eq!((mode(&cert), mode(&secret)), (0o644, 0o600));
    let read = |path: &str| fs::read(path).unwrap();
    let now = distkv::rt::wall_clock_ms() / 1_000;
    assert!(pem::identity(&read(&cert), &read(&secret), now).is_ok());
    assert!(pem::identity(&read(&cert), &read(&secret), now + 31 * 86_400).is_err(), "it is over");
    let hash = pem::ca_hash(&read(&cert)).unwrap();
    assert_eq!(told["ca"].as_str().unwrap().parse::<CaHash>().unwrap(), hash);
    let before = read(&secret);
    let (code, said) = program(&new);
    assert!(code == Some(1) && said.contains("--force"), "{said}");
    assert_eq!(read(&secret), before);
    assert!(!fs::exists(format!("{cert}.pem")).unwrap());
    // A ticket takes it, with the CA behind it.
    let arguments =
        ["ticket", "new", "n1.example.org", "--ca", &cert, "--cert", &cert, "--cert-key", &secret];
    let (code, said) = program(&arguments);
    assert_eq!(code, Some(0), "{said}");
}

#[test]
fn what_cannot_be_made_is_said_and_leaves_no_file() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let to = keys.path("it");
    let cert = |arguments: &[&str]| program(&[&["key", "cert", "--to", &to], arguments].concat());
    for (arguments, code, why) in [
        (&["--key", &key][..], 2, "required"),
        (&["joe"], 2, "--key is missing"),
        (&["joe", "--key", &key, "--days", "0"], 2, "1 to 3650 days"),
        (&["--server", "né", "--key", &key], 2, "is no host"),
        (&["--server", "n1", "--server", "[::1]", "--key", &key], 2, "\"[::1]\" is no host"),
    ] {
        let (got, said) = cert(arguments);
        assert!(got == Some(code) && said.contains(why), "{arguments:?}: {said}");
    }
    let text = fs::read_to_string(&key).unwrap();
    let without: Vec<&str> = text.lines().filter(|line| !line.starts_with("ca ")).collect();
    fs::write(&key, without.join("\n")).unwrap();
    let (code, said) = cert(&["joe", "--key", &key]);
    assert!(
        code == Some(2) && said.contains("the CA in the key file") && said.contains(&key),
        "{said}"
    );
    assert!(!fs::exists(format!("{to}.pem")).unwrap() && !fs::exists(format!("{to}.key")).unwrap());
}

#[test]
fn a_full_disk_leaves_nothing_and_what_is_there_stays() {
    let keys = Keys::new();
    let (key, _) = keys.make("key");
    let folder = keys.path("certificates");
    fs::create_dir(&folder).unwrap();
    let names = || {
        let entries = fs::read_dir(&folder).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // No file may be longer than nothing: as if the disk were full.
    let full = |arguments: &[&str]| {
        let script = "ulimit -f 0; exec \"$0\" key cert --key \"$@\"";
        let mut shell = Command::new("sh");
        let output = shell.args(["-c", script, PROGRAM, &key]).args(arguments).output().unwrap();
        (output.status.code(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let cert = |arguments: &[&str]| program(&[&["key", "cert", "--key", &key], arguments].concat());
    let (joe, ca) = (format!("{folder}/joe"), format!("{folder}/ca"));
    for (what, to, file) in [("joe", &joe, "joe.key"), ("--ca", &ca, "ca.pem")] {
        let (code, said) = full(&[what, "--to", to]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains(file) && said.contains("File too large"), "{said}");
        assert!(names().is_empty(), "{:?}", names());
        let (code, said) = cert(&[what, "--to", to]);
        assert_eq!(code, Some(0), "the second try: {said}");
        for entry in fs::read_dir(&folder).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    // One of the two is there.
    for there in ["joe.pem", "joe.key"] {
        let file = format!("{folder}/{there}");
        fs::write(&file, "precious").unwrap();
        let (code, said) = cert(&["joe", "--to", &joe]);
        assert!(code == Some(1) && said.contains(there) && said.contains("--force"), "{said}");
        assert_eq!(
            (names(), fs::read_to_string(&file).unwrap()),
            (vec![there.into()], "precious".into())
        );
        fs::remove_file(&file).unwrap();
    }
}
