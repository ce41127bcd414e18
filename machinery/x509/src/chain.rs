//! The way from a leaf to an authority, by the rules of Go's `Certificate.Verify` for client authentication.
//!
//! Where these differ from RFC 5280, or from `webpki`, upstream's servers go by Go's: a leaf may be an authority itself, every
//! certificate with extended key usages must have clients' or any among them, an authority counts within its own validity, and a
//! leaf that is in the bundle itself is good.

use crate::certificate::Certificate;
use crate::unverified::Unverified;
use jiff::Timestamp;

/// Issuers that are tried for one chain, as in Go.
pub const MAX_SIGNATURE_CHECKS: usize = 100;
/// Such issuers that the peer brings: an unknown peer chooses how many there are and what their keys cost.
const MAX_INTERMEDIATE_CHECKS: usize = 32;

/// Comparisons of names with constraints for one chain; Go's limit, until it sorted them.
const MAX_COMPARISONS: usize = 250_000;

/// Part of a chain that a certificate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Leaf,
    Intermediate,
    Root,
}

/// Time from the first to the last moment at which all certificates of a chain count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Validity {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

/// A search for a chain.
pub(crate) struct Search<'a> {
    pub(crate) intermediates: &'a [Certificate<'a>],
    /// Authorities whose names a certificate of the peer has as its issuer.
    pub(crate) roots: &'a [Certificate<'a>],
    pub(crate) now: Timestamp,
    checks: usize,
    intermediate_checks: usize,
    /// The first reason why a way ended.
    why: Option<Unverified>,
}

impl<'a> Search<'a> {
    pub(crate) fn new(
        intermediates: &'a [Certificate<'a>],
        roots: &'a [Certificate<'a>],
        now: Timestamp,
    ) -> Self {
        Self {
            intermediates,
            roots,
            now,
            checks: 0,
            intermediate_checks: 0,
            why: None,
        }
    }

    /// Verifies a leaf, which may be in the bundle of authorities itself.
    pub(crate) fn verify(mut self, leaf: &'a Certificate<'a>, is_root: bool) -> Result<Validity, Unverified> {
        self.check(leaf, Part::Leaf, &[])?;
        let found = match is_root {
            true => self.complete(&[leaf]),
            false => self.extend(&mut vec![leaf]),
        };
        match found {
            Some(found) => Ok(found),
            None if self.is_over() => Err(Unverified::TooManySignatures),
            None => Err(self.why.unwrap_or(Unverified::UnknownAuthority)),
        }
    }

    fn is_over(&self) -> bool {
        self.checks > MAX_SIGNATURE_CHECKS || self.intermediate_checks > MAX_INTERMEDIATE_CHECKS
    }

    /// Tries every certificate that may have signed the last one of the chain.
    fn extend(&mut self, chain: &mut Vec<&'a Certificate<'a>>) -> Option<Validity> {
        let child = *chain.last()?;
        for (part, all) in [(Part::Root, self.roots), (Part::Intermediate, self.intermediates)] {
            for parent in parents(child, all) {
                self.checks += 1;
                self.intermediate_checks += usize::from(part == Part::Intermediate);
                if self.is_over() {
                    return None;
                }
                if !parent.key.is_usable() || is_in(parent, chain) {
                    continue;
                }
                // The signature last: it is what costs.
                if let Err(why) = self
                    .check(parent, part, chain)
                    .and_then(|()| signed(child, parent))
                {
                    self.why.get_or_insert(why);
                    continue;
                }
                chain.push(parent);
                let found = match part {
                    Part::Root => self.complete(chain),
                    _ => self.extend(chain),
                };
                chain.pop();
                if found.is_some() {
                    return found;
                }
            }
        }
        None
    }

    /// Go's `isValid`: whether a certificate may be the next one of a chain.
    fn check(&self, own: &Certificate<'_>, part: Part, chain: &[&Certificate<'_>]) -> Result<(), Unverified> {
        if own.extensions.has_unknown_critical {
            return Err(Unverified::UnknownCriticalExtension);
        }
        if !own.is_valid_at(self.now) {
            return Err(Unverified::Expired);
        }
        let Some(constraints) = own.extensions.authority else {
            return match part {
                Part::Intermediate => Err(Unverified::NotAuthorizedToSign),
                Part::Leaf | Part::Root => Ok(()),
            };
        };
        if part == Part::Intermediate && !constraints.is_authority {
            return Err(Unverified::NotAuthorizedToSign);
        }
        let between = u64::try_from(chain.len().saturating_sub(1)).unwrap_or(u64::MAX);
        if constraints.max_path.is_some_and(|most| between > most) {
            return Err(Unverified::TooManyIntermediates);
        }
        Ok(())
    }

    /// Checks of a chain as a whole.
    fn complete(&mut self, chain: &[&Certificate<'_>]) -> Option<Validity> {
        match whole(chain) {
            Ok(validity) => Some(validity),
            Err(why) => {
                self.why.get_or_insert(why);
                None
            }
        }
    }
}

fn whole(chain: &[&Certificate<'_>]) -> Result<Validity, Unverified> {
    // Without requirements no policy makes a chain invalid; Go follows those that there are.
    let below_root = chain.len().saturating_sub(1);
    let minds_policies =
        |own: &&Certificate<'_>| own.extensions.requires_policy || own.extensions.maps_any_policy;
    if chain[..below_root].iter().any(minds_policies) {
        return Err(Unverified::Policy);
    }
    if !chain.iter().all(|own| own.extensions.serves_clients()) {
        return Err(Unverified::KeyUsage);
    }
    check_constraints(chain)?;
    let from = chain.iter().map(|own| own.not_before).max();
    let until = chain.iter().map(|own| own.not_after).min();
    Ok(Validity {
        from: from.unwrap_or(Timestamp::MAX),
        until: until.unwrap_or(Timestamp::MIN),
    })
}

/// Certificates of the issuer's name, those first whose key is the one that the child names.
fn parents<'a>(child: &Certificate<'_>, all: &'a [Certificate<'a>]) -> Vec<&'a Certificate<'a>> {
    let mut parents: Vec<_> = all.iter().filter(|own| own.subject == child.issuer).collect();
    let wanted = child.extensions.authority_key_id;
    parents.sort_by_key(|own| {
        let own = own.extensions.subject_key_id;
        match own == wanted {
            true => 0,
            false if own.is_empty() != wanted.is_empty() => 1,
            false => 2,
        }
    });
    parents
}

/// Reports whether a certificate, or another one of its name and key, is in the chain already.
fn is_in(own: &Certificate<'_>, chain: &[&Certificate<'_>]) -> bool {
    chain.iter().any(|other| {
        own.subject == other.subject
            && own.key_info == other.key_info
            && own.extensions.alternative_names == other.extensions.alternative_names
    })
}

/// Go's `CheckSignatureFrom`.
fn signed(child: &Certificate<'_>, parent: &Certificate<'_>) -> Result<(), Unverified> {
    let may_sign = match parent.extensions.authority {
        Some(constraints) => constraints.is_authority,
        None => parent.version < 3,
    };
    if !may_sign || !parent.extensions.signs_certificates() {
        return Err(Unverified::NotAuthorizedToSign);
    }
    match child.is_signed_with(parent) {
        true => Ok(()),
        false => Err(Unverified::Signature),
    }
}

/// Checks the names of a chain, the leaf first, against the constraints of those above each of them.
fn check_constraints(chain: &[&Certificate<'_>]) -> Result<(), Unverified> {
    let mut comparisons = 0_usize;
    for (at, authority) in chain.iter().enumerate() {
        let Some(constraints) = &authority.extensions.name_constraints else {
            continue;
        };
        for below in &chain[..at] {
            let names = &below.extensions.names;
            comparisons = comparisons.saturating_add(names.len().saturating_mul(constraints.len()));
            if comparisons > MAX_COMPARISONS {
                return Err(Unverified::TooManyConstraints);
            }
            constraints.check(names)?;
        }
    }
    Ok(())
}
