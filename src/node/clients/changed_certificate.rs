//! What clients may trip over when one certificate of the operator's takes the place of another that was good, too. It may be
//! meant, so it is taken; files may have been mixed up, so it is said.

use distkv_tls::Presented;

/// So many names stand in a line of the log.
const NAMES_SHOWN: usize = 8;

/// A line for people for each thing that is odd. `host`: where this node tells others that clients reach it, if it does.
pub(super) fn oddities(before: &Presented, now: &Presented, host: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let names = shown(now);
    if !now.shares_a_name_with(before) {
        found.push(format!(
            "the certificate for clients is for {names} now, and for none of the names of the one before ({}): clients that \
             connect by one of those do not believe it",
            shown(before)
        ));
    } else if let Some(host) = host.filter(|host| before.is_for(host) && !now.is_for(host)) {
        found.push(format!(
            "the certificate for clients is for {names} now, and not for {host} any more, which is where this node tells clients \
             to connect"
        ));
    }
    if let Some(ca) = before.ca_hash().filter(|ca| !now.contains(*ca)) {
        found.push(format!(
            "the CA by which clients knew the certificate for clients so far, {ca}, is not behind it any more: tickets and files \
             of --node-ca with that CA must be replaced"
        ));
    }
    found
}

fn shown(certificate: &Presented) -> String {
    let names = certificate.names();
    let some = names.get(..NAMES_SHOWN).unwrap_or(&names).join(", ");
    match names.len().saturating_sub(NAMES_SHOWN) {
        _ if names.is_empty() => String::from("no name at all"),
        0 => some,
        more => format!("{some} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use distkv_tls::Ca;

    use super::*;

    const NOW: u64 = 1_800_000_000;

    #[test]
    fn what_is_odd_about_a_certificate_that_takes_anothers_place_is_said() {
        let ca = Ca::make("plant", NOW).unwrap();
        let of = |names: &[&str]| ca.issue_node(names, NOW).unwrap().presented();
        let before = of(&["n1.plant.example", "10.0.0.5"]);
        let odd = |now: &Presented, host| oddities(&before, now, host);
        for host in [None, Some("n1.plant.example"), Some("n7.plant.example")] {
            assert_eq!(odd(&before, host), [""; 0]);
            assert_eq!(odd(&of(&["*.plant.example"]), host), [""; 0]);
        }
        let elsewhere = of(&["10.0.0.5", "n2.plant.example"]);
        assert_eq!(odd(&elsewhere, Some("10.0.0.5")), [""; 0]);
        let said = odd(&elsewhere, Some("n1.plant.example"));
        assert!(
            said.len() == 1 && said[0].contains("not for n1.plant.example any more"),
            "{said:?}"
        );
        let many: Vec<String> = (0..10).map(|number| format!("m{number}")).collect();
        let said = odd(&of(&many.iter().map(String::as_str).collect::<Vec<_>>()), None);
        assert!(said.len() == 1 && said[0].contains("m7 and 2 more now, and for none"), "{said:?}");
        let other = Ca::make("plant", NOW).unwrap().issue_node(&["n1.plant.example"], NOW).unwrap();
        let said = odd(&other.presented(), None);
        let text = format!("so far, {}, is not behind it any more", ca.hash());
        assert!(said.len() == 1 && said[0].contains(&text), "{said:?}");
    }
}
