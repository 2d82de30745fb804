//! Secrets that are replaced in their file.

use std::sync::atomic::{AtomicUsize, Ordering};

use futures::future::{join, ready};

use super::*;
use crate::Access;
use crate::connection::tests::Node;
use crate::connection::{Connection, Options};
use crate::error::ClientError;
use crate::model::host_port::HostPort;
use crate::rt::TcpListener;

/// Nothing is cut off by its time.
const PATIENCE: Duration = Duration::from_secs(120);

fn ticket(user: &str, secret: &str) -> Ticket {
    Ticket {
        addresses: vec![String::from("n1:1")],
        network: String::from("shop"),
        login: Some(distkv_tls::Login {
            method: String::from("token"),
            user: user.to_owned(),
            secret: Some(secret.to_owned()),
        }),
        ca: None,
        certificate: None,
    }
}

#[test]
fn only_another_secret_for_the_same_is_taken_and_a_file_is_read_once_for_all() {
    let name = std::env::temp_dir().join(format!("distkv-secret-{}", std::process::id()));
    let write = |text: &str| fs::write(&name, text).unwrap();
    let old = ticket("ann", "the old one");
    let file = Arc::new(TicketFile::new(&old, &name, false).unwrap());
    let first = file.login();
    let read = || {
        // As if a second had passed.
        rt::block_on(async { *file.read_at.lock().await = None });
        rt::block_on(file.other_than(&first, PATIENCE))
    };
    let new = ticket("ann", "the new one");
    let whole = new.to_text().unwrap();
    assert_eq!(read(), None, "there is no file");
    let other_network = Ticket { network: String::from("lab"), ..new.clone() };
    let other_ca = Ticket { ca: Some(CaHash([1; 32])), ..new.clone() };
    let nobody = Ticket { login: None, ..new.clone() };
    let others = [ticket("bob", "the new one"), other_network, other_ca, nobody, old];
    let others = others.map(|other| other.to_text().unwrap());
    let half = whole[..whole.len() / 2].to_owned();
    for wrong in others.iter().chain([&half, &String::new()]) {
        write(wrong);
        assert_eq!(read(), None, "{wrong}");
        assert_eq!(file.since(), 0);
    }
    write(&format!("{whole}\n"));
    // It was read just now: the next one has to wait.
    assert_eq!(rt::block_on(file.other_than(&first, PATIENCE)), None);
    // Addresses are not taken over, and may differ.
    let moved = Ticket { addresses: vec![String::from("n7:1")], ..new.clone() };
    write(&moved.to_text().unwrap());
    assert_eq!(read(), Login::of_ticket(&new));
    fs::remove_file(&name).unwrap();
    // Who was refused with the old one gets the new one without reading.
    assert_eq!(rt::block_on(file.other_than(&first, PATIENCE)), Login::of_ticket(&new));
    assert_eq!(rt::block_on(file.other_than(&file.login(), PATIENCE)), None);
    assert!(file.since() > 0);
}

/// A ticket that was read from a file of this name, with a secret that a node had taken.
fn good(name: &str) -> (Arc<TicketFile>, Login) {
    let name = std::env::temp_dir().join(format!("distkv-{name}-{}", std::process::id()));
    let file = Arc::new(TicketFile::new(&ticket("ann", "the old one"), &name, false).unwrap());
    let login = file.login();
    file.on_taken(&login);
    (file, login)
}

#[test]
fn a_secret_that_was_good_is_waited_for_by_one_for_all_that_are_refused() {
    let (file, first) = good("waited-for");
    let new = ticket("ann", "the new one");
    let reads = AtomicUsize::new(0);
    // Whoever replaces the secret has put the ticket in its place after the second read.
    let read = || {
        if reads.fetch_add(1, Ordering::SeqCst) == 2 {
            fs::write(&file.name, new.to_text().unwrap()).unwrap();
        }
        file.read_again();
        ready(())
    };
    let look = || file.look_for_other(&first, PATIENCE, read);
    let found = rt::block_on(join(look(), look()));
    fs::remove_file(&file.name).unwrap();
    assert_eq!(found, (Login::of_ticket(&new), Login::of_ticket(&new)));
    assert_eq!(reads.into_inner(), 3);
}

#[test]
fn a_secret_that_was_good_is_waited_for_once_and_any_other_not_at_all() {
    let (file, first) = good("once");
    let reads = AtomicUsize::new(0);
    let read = || {
        reads.fetch_add(1, Ordering::SeqCst);
        ready(())
    };
    let look = |patience| {
        let found = rt::block_on(file.look_for_other(&first, patience, read));
        assert_eq!(found, None);
        reads.swap(0, Ordering::SeqCst)
    };
    assert_eq!(look(PATIENCE), 1 + PAUSES_MS.len());
    // If the machine stood still meanwhile, it is read once.
    assert!(look(PATIENCE) <= 1);
    let a_second_later = || rt::block_on(async { *file.read_at.lock().await = None });
    a_second_later();
    assert_eq!(look(PATIENCE), 1);
    // A node has let the client in after all.
    file.on_taken(&first);
    a_second_later();
    let short = Duration::from_millis(PAUSES_MS[0] - 1);
    assert_eq!(look(short), 1, "no pause is as short as its time");
    file.on_taken(&Login::user(None, "ann", Some("another one")));
    a_second_later();
    assert_eq!(look(PATIENCE), 1, "this one is not good any more");
}

#[test]
fn a_secret_that_was_good_is_waited_for_behind_a_read_of_the_second_before() {
    let (file, first) = good("second-before");
    let reads = AtomicUsize::new(0);
    rt::block_on(async { *file.read_at.lock().await = Some(rt::now()) });
    let read = || {
        reads.fetch_add(1, Ordering::SeqCst);
        ready(())
    };
    rt::block_on(file.look_for_other(&first, PATIENCE, read));
    // The last one comes a second later; if the machine stood still meanwhile, others do, too.
    let count = reads.into_inner();
    assert!((1..=1 + PAUSES_MS.len()).contains(&count), "{count}");
}

#[test]
fn a_file_that_cannot_be_read_to_its_end_takes_no_more_than_its_time() {
    let (file, first) = good("hangs");
    let hanging = || std::future::pending();
    let found = rt::block_on(file.look_for_other(&first, Duration::from_millis(10), hanging));
    assert_eq!(found, None);
    assert!(!file.current.lock().is_good);
}

#[test]
fn where_the_program_has_said_which_ca_counts_that_of_the_file_may_be_another_one() {
    let name = std::env::temp_dir().join(format!("distkv-any-ca-{}", std::process::id()));
    let file = TicketFile::new(&ticket("ann", "the old one"), &name, true).unwrap();
    let new = Ticket { ca: Some(CaHash([1; 32])), ..ticket("ann", "the new one") };
    fs::write(&name, new.to_text().unwrap()).unwrap();
    file.read_again();
    fs::remove_file(&name).unwrap();
    assert_eq!(Some(file.login()), Login::of_ticket(&new));
}

/// One connection of a client to a node that answers its first login with `first`, and with it replaces the ticket in the file;
/// the secrets that came, and what became of it.
async fn log_in(
    login: &Login,
    first: Option<&str>,
    replace: impl FnOnce(),
) -> (Vec<String>, Result<(), ClientError>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to = HostPort::from(listener.local_addr().unwrap());
    let access = Access::default().log_in(login.clone());
    let options = Options { connect_timeout: PATIENCE, access, ..Options::default() };
    let connecting = rt::spawn(async move { Connection::connect(&to, options).await.map(|_| ()) });
    let (stream, _) = listener.accept().await.unwrap();
    let mut node = Node::new(stream);
    node.greet_and_ask().await;
    let (mut secrets, mut refusal, mut replace) = (Vec::new(), first, Some(replace));
    while let Some((seq, secret)) = node.receive_login().await {
        secrets.push(secret);
        node.answer_login(seq, refusal.take()).await;
        if let Some(replace) = replace.take() {
            replace();
        }
    }
    (secrets, connecting.await)
}

#[test]
fn a_secret_that_is_replaced_just_after_a_node_refused_it_is_taken_if_it_was_good() {
    let name = std::env::temp_dir().join(format!("distkv-good-{}", std::process::id()));
    let (old, new) = (ticket("ann", "the old one"), ticket("ann", "the new one"));
    let mut file = TicketFile::new(&old, &name, false).unwrap();
    // It is waited for as long as may be, whatever the machine does.
    file.pauses = &[10; 6_000];
    let login = Login { file: Some(Arc::new(file)), ..Login::of_ticket(&old).unwrap() };
    let put = |ticket: &Ticket| fs::write(&name, ticket.to_text().unwrap()).unwrap();
    put(&old);
    let is_refused = |ended| matches!(ended, Err(ClientError::NoAccess { .. }));
    rt::block_on(async {
        // No node has taken it yet.
        let (secrets, ended) = log_in(&login, Some("auth_failed"), || ()).await;
        assert!(is_refused(ended));
        assert_eq!(secrets, ["the old one"]);
        let (_, ended) = log_in(&login, None, || ()).await;
        ended.unwrap();
        for code in ["auth_failed", "too_many"] {
            put(&old);
            let (secrets, ended) = log_in(&login, Some(code), || put(&new)).await;
            ended.unwrap();
            assert_eq!(secrets, ["the old one", "the new one"], "{code}");
            // As if the one before had come back.
            let file = login.file.as_ref().unwrap();
            *file.current.lock() =
                Current { login: Login::of_ticket(&old).unwrap(), since: 0, is_good: true };
            *file.read_at.lock().await = None;
        }
    });
    fs::remove_file(&name).unwrap();
}
