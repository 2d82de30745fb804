//! What a node may show: what some client could believe, and nothing that none could.

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair,
};

use super::*;
use crate::pem::{self, PemError};
use crate::{Presented, Unfit};

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

fn authority(name: &str) -> CertificateParams {
    let mut params = params(name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

/// What a node with these files shows.
fn presented(chain: &[&str], key: &KeyPair) -> Result<Presented, PemError> {
    pem::identity_of_any_time(chain.concat().as_bytes(), key.serialize_pem().as_bytes())
        .map(|identity| identity.presented())
}

#[test]
fn some_client_must_be_able_to_believe_what_a_node_shows() {
    let keys: Vec<KeyPair> = (0..4).map(|_| KeyPair::generate().unwrap()).collect();
    let root = CertifiedIssuer::self_signed(authority("root"), &keys[0]).unwrap();
    let between = CertifiedIssuer::signed_by(authority("between"), &keys[1], &root).unwrap();
    let other = CertifiedIssuer::self_signed(authority("other"), &keys[2]).unwrap();
    let leaf = |purposes: &[ExtendedKeyUsagePurpose]| {
        let mut params = params("n1.example");
        params.extended_key_usages = purposes.to_vec();
        params.signed_by(&keys[3], &between).unwrap().pem()
    };
    let check = |chain: &[&str]| presented(chain, &keys[3]).unwrap().check();
    let (root, between, other) = (root.pem(), between.pem(), other.pem());
    let (server, client) =
        (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    for purposes in [vec![], vec![server.clone()], vec![client.clone(), server]] {
        let leaf = leaf(&purposes);
        assert_eq!(check(&[&leaf, &between, &root]), Ok(()), "{purposes:?}");
        assert_eq!(check(&[&leaf, &between]), Ok(()), "as those of public CAs come");
        assert_eq!(check(&[&leaf, &root, &between]), Ok(()), "a client sorts them");
        assert_eq!(check(&[&leaf]), Err(Unfit::NoCa), "alone");
        assert_eq!(check(&[&leaf, &root]), Err(Unfit::NoCa), "with a gap");
        assert_eq!(check(&[&leaf, &other]), Err(Unfit::NoCa), "with another one");
    }
    assert_eq!(check(&[&leaf(&[client]), &between, &root]), Err(Unfit::NotForServers));
    let own = params("n1.example").self_signed(&keys[3]).unwrap().pem();
    assert_eq!(check(&[&own]), Ok(()), "a client that knows it believes it");
}

#[test]
fn clients_agree_with_what_is_said_of_a_chain() {
    let ca = Ca::make("plant", NOW).unwrap();
    let issued = ca.issue_node(&["n1"], NOW).unwrap();
    let (chain, key) = issued.pem().unwrap();
    let end = "-----END CERTIFICATE-----\n";
    let alone = format!("{}{end}", chain.split(end).next().unwrap());
    let joe = ca.issue_user("joe", 30, NOW).unwrap();
    let (joe_chain, joe_key) = joe.pem().unwrap();
    for (chain, key, fits) in
        [(chain, key, true), (alone.as_str(), key, false), (joe_chain, joe_key, false)]
    {
        let identity = pem::identity_of_any_time(chain.as_bytes(), key.as_bytes()).unwrap();
        assert_eq!(identity.presented().check().is_ok(), fits);
        let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
        assert_eq!(meet(&client_of(&ca), &server, "n1").2[0].is_ok(), fits);
    }
    // A client is told what may be the cause.
    let identity = pem::identity_of_any_time(alone.as_bytes(), key.as_bytes()).unwrap();
    let server = ServerTls::new(&identity, &ClientRoots::none(), clock()).unwrap();
    let error = client_error(&client_of(&ca), &server, "n1").to_string();
    assert!(error.contains("does not send its CA along"), "{error}");
}

#[test]
fn names_are_compared_as_clients_do() {
    let ca = Ca::make("plant", NOW).unwrap();
    let of = |names: &[&str]| ca.issue_node(names, NOW).unwrap().presented();
    let old = of(&["n1.plant.example", "10.0.0.5"]);
    assert_eq!(old.names(), ["n1.plant.example", "10.0.0.5"]);
    assert!(old.is_for("N1.plant.example") && old.is_for("10.0.0.5"));
    assert!(!old.is_for("n2.plant.example") && !old.is_for("no host"));
    for other in [&["n1.plant.example"][..], &["*.plant.example"], &["n9", "10.0.0.5"]] {
        assert!(old.shares_a_name_with(&of(other)) && of(other).shares_a_name_with(&old));
    }
    assert!(!old.shares_a_name_with(&of(&["n2.plant.example", "10.0.0.6", "*.other"])));
    assert!(old.contains(ca.hash()) && old.ca_hash() == Some(ca.hash()));
    assert!(!old.contains(Ca::make("plant", NOW).unwrap().hash()));
}
