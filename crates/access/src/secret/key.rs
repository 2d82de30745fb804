//! The login kind `key`: both sides prove that they have the cluster's key, without sending it.
//!
//! Each side sends a nonce, then the HMAC over both. The sides' labels differ, so that a proof cannot be sent
//! back to where it came from.

use hmac::{Hmac, Mac};
use sha2::Sha256;

/// Bytes of a nonce, fresh and random for each login.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a proof.
const PROOF_BYTES: usize = 32;

/// Who proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one who logs in.
    Client,
    /// The node.
    Node,
}

/// Both sides' nonces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Nonces {
    /// The client's.
    pub client: [u8; NONCE_BYTES],
    /// The node's.
    pub node: [u8; NONCE_BYTES],
}

/// A side's proof that it has the key: 32 bytes that were derived from the cluster's secret for this purpose.
#[must_use]
pub fn prove(key: &[u8; 32], side: Side, nonces: &Nonces) -> [u8; PROOF_BYTES] {
    mac(key, side, nonces).map_or([0; PROOF_BYTES], |mac| mac.finalize().into_bytes().into())
}

/// Whether `proof` is that of the side; in constant time.
#[must_use]
pub fn is_proof(key: &[u8; 32], side: Side, nonces: &Nonces, proof: &[u8]) -> bool {
    mac(key, side, nonces).is_some_and(|mac| mac.verify_slice(proof).is_ok())
}

/// Keys of any length are taken, so there always is one.
fn mac(key: &[u8; 32], side: Side, nonces: &Nonces) -> Option<Hmac<Sha256>> {
    let label: &[u8] = match side {
        Side::Client => b"distkv login client 1",
        Side::Node => b"distkv login node 1",
    };
    let mac = <Hmac<Sha256> as Mac>::new_from_slice(key).ok()?;
    Some(mac.chain_update(label).chain_update(nonces.client).chain_update(nonces.node))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_holds_for_its_key_side_and_nonces_only() {
        let nonces = Nonces { client: [1; 32], node: [2; 32] };
        let proof = prove(&[3; 32], Side::Client, &nonces);
        assert!(is_proof(&[3; 32], Side::Client, &nonces, &proof));
        assert!(!is_proof(&[4; 32], Side::Client, &nonces, &proof));
        assert!(!is_proof(&[3; 32], Side::Node, &nonces, &proof));
        let swapped = Nonces { client: [2; 32], node: [1; 32] };
        assert!(!is_proof(&[3; 32], Side::Client, &swapped, &proof));
        let replayed = Nonces { node: [5; 32], ..nonces };
        assert!(!is_proof(&[3; 32], Side::Client, &replayed, &proof));
        assert!(!is_proof(&[3; 32], Side::Client, &nonces, &proof[..31]));
        assert!(!is_proof(&[3; 32], Side::Client, &nonces, &[]));
    }

    #[test]
    fn a_proof_is_this_hmac() {
        // So that clients in other languages can be written: `client` label, both nonces.
        let nonces = Nonces { client: [0; 32], node: [1; 32] };
        let hex: String =
            prove(&[2; 32], Side::Client, &nonces).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(hex, "a7cddc04e748ef3bcaac588d24fde3bd985d7933def912e0c14828fe5a9c5072");
    }
}
