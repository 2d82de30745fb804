//! What is wrong in a configuration file, in a person's words.

/// Below this, two keys have too little in common for a guess.
const LIKENESS_MIN: f64 = 0.8;

/// What is wrong, on one line.
pub(in crate::cli::run) fn problem_of(error: &toml::de::Error) -> String {
    let text = error.message().trim().replace('\n', "; ");
    unknown_key(&text).unwrap_or(text)
}

/// For a key that there is not: the one that is most like it, instead of the list of all that serde's text has.
fn unknown_key(text: &str) -> Option<String> {
    let mut quoted = text.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let key = quoted.next()?;
    if key == "discard-damaged" {
        return Some(format!("{key:?} is no key: give --{key} once, with one start"));
    }
    let likeness = |known: &str| strsim::jaro_winkler(key, known);
    let nearest = quoted.max_by(|one, other| likeness(one).total_cmp(&likeness(other)));
    Some(match nearest.filter(|known| likeness(known) >= LIKENESS_MIN) {
        Some(known) => format!("unknown key {key:?}; did you mean {known:?}?"),
        None => format!("unknown key {key:?}; `distkv-node run --help` lists all keys"),
    })
}
