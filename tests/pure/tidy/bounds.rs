//! `docs/bounds.md` against the sources: every named bound has a row, and each row has the name, the
//! value and the file of a constant, or of a setting's default, that exists.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use super::source::{without_literals, without_tests};
use super::{is_test_file, root, source_files};

const PAGE: &str = "docs/bounds.md";

/// Folders and constants that need no row, each with the reason.
const EXCEPTIONS: &[(&str, &str)] = &[
    ("crates/sim/", "sizes of simulations, which no node has"),
    ("crates/bench/", "sizes of measurements, which no node has"),
    ("ENTRY_MAX", "a kind of record, not a size"),
    ("DIGITS_MAX", "follows from a number's width"),
    ("FIELD_BYTES_MAX", "follows from an encoding"),
    ("ADDR_BYTES_MAX", "follows from an encoding"),
    ("LEB128_BYTES_MAX", "follows from an encoding"),
    ("IDENTITY_BYTES_MAX", "follows from an encoding"),
    ("HEADER_BYTES_MAX", "follows from an encoding"),
    ("WIDTH_MAX", "a column on the screen"),
    ("PATH_WIDTH_MAX", "a column on the screen"),
];

/// How deep constants may refer to others.
const DEPTH_MAX: usize = 8;

/// What the sources say of the constants and of the defaults of settings.
struct Sources {
    /// By file and name: the expression.
    values: BTreeMap<(String, String), String>,
    /// Of these, the constants whose name ends in `_MAX`.
    bounds: Vec<(String, String)>,
}

impl Sources {
    fn read() -> Self {
        let mut sources = Self { values: BTreeMap::new(), bounds: Vec::new() };
        for file in source_files() {
            let name = file.strip_prefix(root()).unwrap().display().to_string();
            sources.add(&name, &fs::read_to_string(&file).unwrap(), is_test_file(&file));
        }
        sources
    }

    fn add(&mut self, file: &str, text: &str, is_test: bool) {
        // What is a test or only for tests limits no node.
        let text = &without_tests(&without_literals(text));
        let mut default_of: Option<String> = None;
        for (at, line) in text.split_inclusive('\n').scan(0, |at, line| {
            *at += line.len();
            Some((*at - line.len(), line))
        }) {
            let code = line.trim();
            if let Some(rest) = code.strip_prefix("impl Default for ") {
                default_of = Some(rest.trim_end_matches([' ', '{']).to_owned());
            } else if line.starts_with('}') {
                default_of = None;
            }
            if let Some((name, expression)) = constant(text.get(at..).unwrap(), code) {
                if name.ends_with("_MAX") && !is_test {
                    self.bounds.push((file.to_owned(), name.clone()));
                }
                self.values.entry((file.to_owned(), name)).or_insert(expression);
            } else if let Some(owner) = &default_of {
                for (field, value) in fields(code) {
                    let key = (file.to_owned(), format!("{owner}::{field}"));
                    self.values.entry(key).or_insert(value);
                }
            }
        }
    }

    /// The value of a constant or a default.
    fn value(&self, file: &str, name: &str) -> Option<u64> {
        self.value_within(file, name, 0)
    }

    fn value_within(&self, file: &str, name: &str, depth: usize) -> Option<u64> {
        if depth > DEPTH_MAX {
            return None;
        }
        let expression = self.values.get(&(file.to_owned(), name.to_owned()))?;
        evaluate(expression, &|other| self.resolve(file, other, depth + 1))
    }

    /// The value of a name that an expression of this file has: of this file, of the module that a
    /// path names, or of whichever file is the only one that has it.
    fn resolve(&self, file: &str, path: &str, depth: usize) -> Option<u64> {
        let (module, name) = path.rsplit_once("::").unwrap_or(("", path));
        let module = module.rsplit("::").next().unwrap();
        if module.is_empty() && self.values.contains_key(&(file.to_owned(), name.to_owned())) {
            return self.value_within(file, name, depth);
        }
        let is_there = |candidate: &str| match module {
            "" | "super" | "crate" => candidate != file,
            module => candidate.contains(&format!("/{module}")),
        };
        let files = self.values.keys().filter(|(f, n)| n == name && is_there(f));
        let mut found: Vec<u64> =
            files.filter_map(|(f, n)| self.value_within(f, n, depth)).collect();
        found.dedup();
        (found.len() == 1).then(|| found[0])
    }
}

/// The constant that begins at this line, and its expression, which may go on behind it.
fn constant(text: &str, code: &str) -> Option<(String, String)> {
    let code = code.strip_prefix("pub").map_or(code, |rest| {
        let rest = if rest.starts_with('(') { rest.split_once(')').unwrap().1 } else { rest };
        rest.trim_start()
    });
    let rest = code.strip_prefix("const ")?;
    let (name, rest) = rest.split_once(':')?;
    let is_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    if !name.chars().all(is_name) || name.is_empty() || !rest.contains('=') {
        return None;
    }
    let (statement, _) = text.split_once(';')?;
    let (_, expression) = statement.split_once('=')?;
    Some((name.to_owned(), expression.trim().to_owned()))
}

/// The fields that a line of a struct's value gives: `a: 1, b: 2,`, also within another struct.
fn fields(code: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for part in code.split([',', '{', '}']) {
        if let Some((field, value)) = part.split_once(": ") {
            let field = field.trim();
            if field.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                found.push((field.to_owned(), value.trim().to_owned()));
            }
        }
    }
    found
}

/// The value of an expression of numbers, names, `+`, `-`, `*`, `<<`, parentheses and durations (then
/// in milliseconds).
fn evaluate(expression: &str, resolve: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut rest = expression;
    let value = shifted(&mut rest, resolve)?;
    rest.trim().is_empty().then_some(value)
}

type Resolve<'a> = &'a dyn Fn(&str) -> Option<u64>;

fn takes(rest: &mut &str, token: &str) -> bool {
    let found = rest.trim_start().strip_prefix(token);
    found.inspect(|behind| *rest = behind).is_some()
}

fn shifted(rest: &mut &str, resolve: Resolve<'_>) -> Option<u64> {
    let mut value = sum(rest, resolve)?;
    while takes(rest, "<<") {
        value = value.checked_shl(u32::try_from(sum(rest, resolve)?).ok()?)?;
    }
    Some(value)
}

fn sum(rest: &mut &str, resolve: Resolve<'_>) -> Option<u64> {
    let mut value = product(rest, resolve)?;
    loop {
        if takes(rest, "+") {
            value = value.checked_add(product(rest, resolve)?)?;
        } else if takes(rest, "-") {
            value = value.checked_sub(product(rest, resolve)?)?;
        } else {
            return Some(value);
        }
    }
}

fn product(rest: &mut &str, resolve: Resolve<'_>) -> Option<u64> {
    let mut value = operand(rest, resolve)?;
    while takes(rest, "*") {
        value = value.checked_mul(operand(rest, resolve)?)?;
    }
    Some(value)
}

fn operand(rest: &mut &str, resolve: Resolve<'_>) -> Option<u64> {
    let thousand = takes(rest, "Duration::from_secs");
    if takes(rest, "Duration::from_millis") || thousand || rest.trim_start().starts_with('(') {
        takes(rest, "(").then_some(())?;
        let value = shifted(rest, resolve)?;
        takes(rest, ")").then_some(())?;
        return if thousand { value.checked_mul(1_000) } else { Some(value) };
    }
    let text = rest.trim_start();
    let end = text
        .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':')
        .unwrap_or(text.len());
    let (word, behind) = text.split_at(end);
    *rest = behind;
    match word.chars().next()? {
        '0'..='9' => word.replace('_', "").parse().ok(),
        _ => resolve(word),
    }
}

/// A value as the page has it: with its unit, if the name tells one.
fn shown(name: &str, expression: &str, value: u64) -> String {
    let upper = name.to_uppercase();
    let is_bytes = ["BYTES", "MEMORY", "OUTPUT_LEAST"].iter().any(|word| upper.contains(word));
    let is_ms = upper.contains("_MS") || expression.contains("Duration::");
    let unit = |divisor: u64, unit: &str| Some(format!("{} {unit}", grouped(value / divisor)));
    let divides = |divisor: u64| value >= divisor && value.is_multiple_of(divisor);
    let with_unit = match (is_bytes, is_ms) {
        (true, _) if divides(1 << 20) => unit(1 << 20, "MiB"),
        (true, _) if divides(1 << 10) => unit(1 << 10, "KiB"),
        (true, _) => unit(1, "bytes"),
        (_, true) if divides(1_000) => unit(1_000, "s"),
        (_, true) => unit(1, "ms"),
        _ => None,
    };
    with_unit.unwrap_or_else(|| grouped(value))
}

fn grouped(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A row of the page: the cells, the first of which is a name in backquotes and the third a file.
fn row(line: &str) -> Option<(&str, &str, Vec<&str>)> {
    let cells: Vec<&str> = line.strip_prefix('|')?.split('|').map(str::trim).collect();
    let name = cells.first()?.strip_prefix('`')?.strip_suffix('`')?;
    let file = cells.get(2)?.strip_prefix('`')?.strip_suffix('`')?;
    Some((name, file, cells))
}

/// The page with the values of the sources, and what is wrong with its rows.
fn rewritten(page: &str, sources: &Sources) -> (String, Vec<String>) {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    for line in page.lines() {
        let Some((name, file, cells)) = row(line) else {
            writeln!(text, "{line}").unwrap();
            continue;
        };
        let key = (file.to_owned(), name.to_owned());
        let value = match (sources.values.get(&key), sources.value(file, name)) {
            (Some(expression), Some(value)) => shown(name, expression, value),
            (Some(expression), None) => format!("`{expression}`"),
            (None, _) => {
                wrong.push(format!("{PAGE}: {file} has no {name}"));
                cells[1].to_owned()
            }
        };
        if cells[1] != value {
            wrong.push(format!("{PAGE}: {name} ({file}) is {value}, not {:?}", cells[1]));
        }
        if cells.get(3..5).is_none_or(|told| told.iter().any(|cell| cell.is_empty())) {
            wrong.push(format!("{PAGE}: {name} ({file}): what it limits, and what happens then?"));
        }
        let rest = cells.get(3..).unwrap_or_default().join(" | ");
        writeln!(text, "| `{name}` | {value} | `{file}` | {}", rest.trim_end()).unwrap();
    }
    (text, wrong)
}

/// Bounds of the sources that have no row.
fn missing(page: &str, sources: &Sources) -> Vec<String> {
    let has_row = |file: &str, name: &str| {
        page.lines().filter_map(row).any(|(n, f, _)| (n, f) == (name, file))
    };
    let is_exception = |file: &str, name: &str| {
        EXCEPTIONS.iter().any(|(what, _)| *what == name || file.starts_with(what))
    };
    let without = sources.bounds.iter().filter(|(f, n)| !has_row(f, n) && !is_exception(f, n));
    without.map(|(file, name)| format!("{file}: {name} has no row in {PAGE}")).collect()
}

#[test]
fn the_page_of_bounds_says_what_the_sources_say() {
    let sources = Sources::read();
    let mut page = fs::read_to_string(root().join(PAGE)).unwrap();
    if std::env::var_os("DISTKV_WRITE_BOUNDS").is_some() {
        page = rewritten(&page, &sources).0;
        fs::write(root().join(PAGE), &page).unwrap();
    }
    let (_, mut wrong) = rewritten(&page, &sources);
    wrong.extend(missing(&page, &sources));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(sources.bounds.len() > 100, "only {} bounds were found", sources.bounds.len());
}

#[test]
fn no_exception_is_left_over() {
    let sources = Sources::read();
    for (what, reason) in EXCEPTIONS {
        let is_used = sources.bounds.iter().any(|(f, n)| n == what || f.starts_with(what));
        assert!(is_used, "no bound is called {what} ({reason})");
    }
}

#[test]
fn another_value_another_file_and_a_constant_that_is_gone_are_noticed() {
    let mut sources = Sources { values: BTreeMap::new(), bounds: Vec::new() };
    let text = "#[cfg(test)]\nmod tests;\n#[cfg(test)]\nconst E_MAX: u8 = 1;\n#[cfg(test)]\n\
                mod m {\n    const F_MAX: u8 = 1;\n}\n\
                pub const A_BYTES_MAX: usize = 2 * B + (1 << 10);\nconst B: usize = 1_024;\n\
                impl Default for Caps {\n        Self { list: L { ranges: 7 }, b: B }\n}\n\
                const C_MAX: Duration = Duration::from_secs(90);\n";
    sources.add("x.rs", text, false);
    assert_eq!(sources.value("x.rs", "A_BYTES_MAX"), Some(3 << 10));
    assert_eq!(sources.bounds.len(), 2, "what is only for tests needs no row");
    assert_eq!(sources.value("x.rs", "Caps::ranges"), Some(7));
    let good = "| `A_BYTES_MAX` | 3 KiB | `x.rs` | a | b |\n| `C_MAX` | 90 s | `x.rs` | a | b |\n\
                | `Caps::b` | 1,024 | `x.rs` | a | b |\n";
    assert_eq!(rewritten(good, &sources), (good.to_owned(), Vec::new()));
    assert_eq!(missing(good, &sources), Vec::<String>::new());
    for (from, to) in
        [("3 KiB", "4 KiB"), ("`x.rs`", "`y.rs`"), ("C_MAX", "D_MAX"), ("| b |", "|  |")]
    {
        let bad = good.replacen(from, to, 1);
        assert!(!rewritten(&bad, &sources).1.is_empty(), "{bad}");
    }
    assert_eq!(rewritten(&good.replace("90 s", ""), &sources).0, good);
    let (without, _) = good.split_once('\n').unwrap();
    assert_eq!(missing(without, &sources).len(), 1);
}
