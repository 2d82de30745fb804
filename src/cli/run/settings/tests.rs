//! Options, file and defaults.

use std::path::PathBuf;

use super::*;
use crate::cli::run::node_args;
use crate::model::value::Value;
use crate::node::config::SyncPolicy;

fn config(settings: Settings, kind: StartKind) -> Result<Config, String> {
    settings.into_config(kind, || String::from("host")).map_err(|error| {
        assert_eq!(error.exit_code(), 2);
        error.to_string()
    })
}

fn parse(text: &str) -> Settings {
    Settings::parse(text).unwrap()
}

#[test]
fn without_anything_the_defaults_hold() {
    let config = config(Settings::default(), StartKind::Run).unwrap();
    assert_eq!(config.name.as_str(), "host");
    assert_eq!(config.network, "distkv");
    assert_eq!(
        (config.client.as_str(), config.gossip.as_str()),
        ("127.0.0.1:27586", "127.0.0.1:27587")
    );
    assert!(config.peers.is_empty() && !config.read_only && config.memory_max.is_none());
    assert!(matches!(config.start, Start::Run { init: None, load: None }));
    assert!(config.data.is_none() && config.client_files.is_none() && !config.remote_restore);
}

#[test]
fn the_file_sets_whatever_options_can() {
    let settings = parse(
        r#"
        name = "n1"
        network = "plant"
        client = "[::]:1000"
        gossip = "0.0.0.0:1001"
        advertise = "n1.example.org"
        advertise-client = "n1.example.org:37586"
        peers = ["n2.example.org", "10.0.0.3:7"]
        peer-file = "peers"
        max-memory = "1.5GiB"
        read-only = true
        max-connections = 7
        threads = 3
        forget-down-after = "1.5m"
        purge-grace = "30s"
        data-dir = "/data"
        sync = "every-batch"
        log-rotate-bytes = "1MiB"
        log-rotate-after = "2h"
        snapshot-after = 1048576
        keep-snapshots = 5
        keep-for = "2d"
        keep-size = "3GiB"
        client-files = "/files"
        remote-restore = true
        init = { site = "main", levels = [1, 2.5, true] }
        load = "saved.bin"
        log = "debug"
        json = true
        "#,
    );
    assert_eq!(settings.log.as_deref(), Some("debug"));
    assert_eq!(settings.json, Some(true));
    assert_eq!(settings.threads().ok(), Some(3));
    for threads in [Some(0), Some(THREADS_MAX + 1)] {
        assert!(Settings { threads, ..Settings::default() }.threads().is_err());
    }
    assert!(Settings::default().threads().is_ok_and(|threads| threads >= 1));
    let config = config(settings, StartKind::Run).unwrap();
    assert_eq!(config.client, "[::]:1000");
    assert_eq!(config.advertise.as_deref(), Some("n1.example.org"));
    assert_eq!(config.advertise_client.as_deref(), Some("n1.example.org:37586"));
    assert_eq!(config.peers, ["n2.example.org:27587", "10.0.0.3:7"]);
    assert_eq!(config.memory_max, Some(3 << 29));
    assert!(config.read_only && config.remote_restore);
    assert_eq!(config.connections_max, 7);
    assert_eq!(config.forget_down_after, Duration::from_secs(90));
    assert_eq!(config.purge_grace, Duration::from_secs(30));
    let data = DataConfig {
        sync: SyncPolicy::EveryBatch,
        rotate_bytes: 1 << 20,
        rotate_after: Duration::from_secs(7_200),
        snapshot_after: 1 << 20,
        keep_snapshots: 5,
        keep_for: Duration::from_secs(2 * 86_400),
        keep_bytes: 3 << 30,
        ..DataConfig::new("/data".into())
    };
    assert_eq!((config.data, config.client_files), (Some(data), Some("/files".into())));
    let Start::Run { init: Some(init), load: Some(load) } = config.start else { panic!() };
    assert_eq!(load, PathBuf::from("saved.bin"));
    let text = crate::protocol::json::text_from_msgpack(init.as_bytes()).unwrap();
    assert!(text.contains(r#""levels":[1,2.5,true]"#), "{text}");
}

#[test]
fn options_win_over_the_file_one_by_one() {
    let file = parse("name = \"file\"\nnetwork = \"file\"\npeers = [\"a\"]\nread-only = true");
    let options = Settings {
        name: Some("option".into()),
        peers: Some(vec!["b".into()]),
        read_only: Some(false),
        ignore_auth: Some(true),
        isolated_logins: Some(Duration::from_secs(600)),
        audit: Some("/var/lib/distkv/audit".into()),
        ..Settings::default()
    };
    let settings = options.or(file);
    assert_eq!(settings.ignore_auth, Some(true));
    assert_eq!(settings.name.as_deref(), Some("option"));
    assert_eq!(settings.network.as_deref(), Some("file"));
    assert_eq!(settings.peers, Some(vec!["b".into()]));
    assert_eq!(settings.read_only, Some(false));
}

#[test]
fn an_unknown_key_is_an_error_with_its_line() {
    let (line, problem) = Settings::parse("name = \"n\"\n\nmax-memroy = 5\n").unwrap_err();
    assert_eq!(line, 3);
    assert_eq!(problem, r#"unknown key "max-memroy"; did you mean "max-memory"?"#);
    let (line, _) = Settings::parse("name = \"n\"\nname = \"m\"\n").unwrap_err();
    assert_eq!(line, 2);
}

#[test]
fn an_unknown_key_is_told_with_the_one_that_was_meant() {
    let said = |key: &str| Settings::parse(&format!("{key} = 5")).unwrap_err().1;
    for (key, meant) in [
        ("cert-name", "cert-names"),
        ("peer", "peers"),
        ("max_memory", "max-memory"),
        ("http-tokenfile", "http-token-file"),
    ] {
        assert_eq!(said(key), format!("unknown key {key:?}; did you mean {meant:?}?"));
    }
    let unlike = said("colour");
    assert_eq!(unlike, r#"unknown key "colour"; `distkv-node run --help` lists all keys"#);
    assert!(said("discard-damaged").contains("give --discard-damaged once"));
}

#[test]
fn the_help_shows_every_key_of_the_file() {
    let help = node_args::long_help!();
    let file = help.split_once("All keys:").unwrap().1.split_once("Data on disk").unwrap().0;
    assert_eq!(Settings::parse(file).map(drop), Ok(()));
    let shown: toml::Table = file.parse().unwrap();
    // serde lists all that there are behind one that there is not.
    let error = toml::from_str::<Settings>("unheard-of = 1").unwrap_err();
    let known: Vec<&str> = error.message().split('`').skip(3).step_by(2).collect();
    assert!(known.len() > 40, "{known:?}");
    let missing: Vec<_> = known.into_iter().filter(|key| !shown.contains_key(*key)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}

#[test]
fn a_bad_setting_is_an_error_with_its_line() {
    for text in [
        "\nmax-memory = \"many\"",
        "\nmax-memory = -1",
        "\nmax-memory = 1.5",
        "\nsync = \"sometimes\"",
        "\nsync = 1",
        "\nread-only = 1",
        "\ninit = 1979-05-27",
        "\ninit = nan",
        "\npeers = \"a\"",
        "\nname = ",
        "\n[network]",
    ] {
        let (line, problem) = Settings::parse(text).unwrap_err();
        assert_eq!(line, 2, "{text}: {problem}");
        assert!(!problem.contains('\n'), "{problem}");
    }
}

#[test]
fn a_node_that_joins_needs_a_peer_and_brings_no_data() {
    let error = config(Settings::default(), StartKind::Join).unwrap_err();
    assert!(error.contains("run"), "{error}");
    let peers = Some(vec![String::from("10.0.0.1")]);
    let joining = Settings { peers, ..Settings::default() };
    assert!(matches!(config(joining.clone(), StartKind::Join).unwrap().start, Start::Join));
    let with_data = Settings { init: Some(Value::nil()), ..joining };
    assert!(config(with_data, StartKind::Join).unwrap_err().contains("init"));
    let known = Settings { peer_file: Some("peers".into()), ..Settings::default() };
    assert!(config(known, StartKind::Join).is_ok());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let some = |text: &str| Some(text.to_owned());
    for settings in [
        Settings { name: some("a b"), ..Settings::default() },
        Settings { client: some("localhost"), ..Settings::default() },
        Settings { gossip: some("127.0.0.1:99999"), ..Settings::default() },
        Settings { advertise: some(":80"), ..Settings::default() },
        Settings { advertise_client: some(":80"), ..Settings::default() },
        Settings { peers: Some(vec!["a b".into()]), ..Settings::default() },
        Settings { max_connections: Some(0), ..Settings::default() },
        Settings { forget_down_after: Some(Duration::ZERO), ..Settings::default() },
    ] {
        assert!(config(settings.clone(), StartKind::Run).is_err(), "{settings:?}");
    }
}

#[test]
fn a_link_local_address_without_its_zone_is_refused_wherever_this_machine_uses_it() {
    let some = |text: &str| Some(text.to_owned());
    let all = |text: &str| {
        [
            ("--client", Settings { client: some(text), ..Settings::default() }),
            ("--gossip", Settings { gossip: some(text), ..Settings::default() }),
            ("--http", Settings { http: some(text), ..Settings::default() }),
            ("peer", Settings { peers: Some(vec![text.into()]), ..Settings::default() }),
        ]
    };
    for (what, settings) in all("[fe80::1]:5") {
        let error = config(settings, StartKind::Run).unwrap_err();
        assert!(error.starts_with(&format!("{what}: \"[fe80::1]:5\" is a link-local")), "{error}");
        assert!(error.ends_with("give its zone, like [fe80::1%eth0]:5"), "{error}");
    }
    for (what, settings) in all("[fe80::1%eth0]:5") {
        assert!(config(settings, StartKind::Run).is_ok(), "{what}");
    }
}

#[test]
fn a_host_name_that_is_no_node_name_asks_for_one() {
    let error = Settings::default().into_config(StartKind::Run, String::new).unwrap_err();
    assert!(error.to_string().contains("--name"), "{error}");
}

#[test]
fn how_data_is_kept_needs_a_place_for_it_and_sense() {
    let set = |change: fn(&mut Settings)| {
        let mut settings = Settings { data_dir: Some("data".into()), ..Settings::default() };
        change(&mut settings);
        config(settings, StartKind::Run)
    };
    assert_eq!(set(|_| {}).unwrap().data, Some(DataConfig::new("data".into())));
    assert!(set(|s| s.discard_damaged = Some(true)).unwrap().data.unwrap().discard_damaged);
    let lone = set(|s| (s.data_dir, s.sync) = (None, Some(SyncPolicy::Never))).unwrap_err();
    assert!(lone.contains("--sync needs --data-dir"), "{lone}");
    assert!(set(|s| s.keep_snapshots = Some(0)).is_err());
    let no_past = set(|s| s.keep_for = Some(Duration::ZERO)).unwrap().data.unwrap();
    assert_eq!(no_past.keep_for, Duration::ZERO);
    assert!(set(|s| s.log_rotate_bytes = Some(100)).is_err());
    assert!(set(|s| s.log_rotate_after = Some(Duration::ZERO)).is_err());
    // A decision of one start must not stay in a file.
    assert!(Settings::parse("discard-damaged = true").is_err());
    // Its peers are in the data directory, if it has been there before.
    let joining = Settings { data_dir: Some("data".into()), ..Settings::default() };
    assert!(config(joining, StartKind::Join).is_ok());
}

#[test]
fn what_clients_can_take_has_bounds_that_make_sense() {
    let file = parse("max-client-memory = \"64MiB\"\nmax-requests = 5000\nname = \"n\"");
    let set = config(file, StartKind::Run).unwrap();
    assert_eq!((set.client_memory_max, set.open_requests_max), (64 << 20, 5_000));
    let defaults = config(parse("name = \"n\""), StartKind::Run).unwrap();
    assert_eq!((defaults.client_memory_max, defaults.open_requests_max), (256 << 20, 16_384));
    let waiting = |text: &str| {
        config(parse(&format!("name = \"n\"\n{text}")), StartKind::Run).map(|c| c.ready_wait)
    };
    assert_eq!(waiting("").unwrap(), Duration::from_secs(30));
    assert_eq!(waiting("ready-wait = \"0s\"").unwrap(), Duration::ZERO);
    assert!(waiting("ready-wait = \"2h\"").is_err());
    for wrong in ["max-client-memory = 1000", "max-requests = 256", "max-requests = 1000000"] {
        let wrong = parse(&format!("name = \"n\"\n{wrong}"));
        assert!(config(wrong, StartKind::Run).is_err());
    }
}
