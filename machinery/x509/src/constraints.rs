//! Name constraints: names that the certificates below an authority may have, and may not, as Go's `checkChainConstraints` has it.
//!
//! They are about alternative names; the common name, which is the user's, is not bound by them.

use crate::certificate::Certificate;
use crate::chain::Unverified;
use crate::der::{Malformed, Reader, SEQUENCE, constructed, context};

/// Comparisons of names with constraints for one chain; Go's limit, until it sorted them.
const MAX_COMPARISONS: usize = 250_000;

const EMAIL: u8 = context(1);
const DNS: u8 = context(2);
const URI: u8 = context(6);
const ADDRESS: u8 = context(7);

/// Alternative names of the kinds that are compared.
#[derive(Debug, Default)]
pub(crate) struct GeneralNames<'a> {
    dns: Vec<&'a str>,
    emails: Vec<&'a str>,
    uris: Vec<&'a str>,
    addresses: Vec<&'a [u8]>,
}

impl<'a> GeneralNames<'a> {
    pub(crate) fn read(mut list: Reader<'a>) -> Result<Self, Malformed> {
        const WHAT: &str = "an alternative name";
        let mut names = Self::default();
        while !list.is_empty() {
            let own = list.element().ok_or(Malformed(WHAT))?;
            match own.tag {
                DNS => names.dns.push(ascii(own.content)?),
                EMAIL => names.emails.push(ascii(own.content)?),
                URI => names.uris.push(ascii(own.content)?),
                ADDRESS if matches!(own.content.len(), 4 | 16) => names.addresses.push(own.content),
                ADDRESS => return Err(Malformed(WHAT)),
                _ => {}
            }
        }
        Ok(names)
    }

    /// Reports whether there is none of a kind that is compared.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn len(&self) -> usize {
        self.dns.len() + self.emails.len() + self.uris.len() + self.addresses.len()
    }
}

fn ascii(bytes: &[u8]) -> Result<&str, Malformed> {
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.is_ascii());
    text.ok_or(Malformed("a name that is not ASCII"))
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NameConstraints<'a> {
    permitted: Subtrees<'a>,
    excluded: Subtrees<'a>,
}

#[derive(Debug, Default)]
struct Subtrees<'a> {
    names: GeneralNames<'a>,
    /// Addresses with their masks, each half of it.
    networks: Vec<(&'a [u8], &'a [u8])>,
}

impl<'a> NameConstraints<'a> {
    /// Reads the extension, and reports whether every kind of name in it is compared.
    pub(crate) fn read(mut outer: Reader<'a>) -> Result<(Self, bool), Malformed> {
        const WHAT: &str = "name constraints";
        let mut own = outer.inner(SEQUENCE, WHAT)?;
        let permitted = own.optional(constructed(0), WHAT)?;
        let excluded = own.optional(constructed(1), WHAT)?;
        let is_nothing = |part: &Option<Reader<'_>>| part.as_ref().is_none_or(Reader::is_empty);
        if !outer.is_empty() || !own.is_empty() || is_nothing(&permitted) && is_nothing(&excluded) {
            return Err(Malformed(WHAT));
        }
        let (permitted, one) = permitted.map_or_else(|| Ok(Default::default()), Subtrees::read)?;
        let (excluded, other) = excluded.map_or_else(|| Ok(Default::default()), Subtrees::read)?;
        Ok((Self { permitted, excluded }, !one && !other))
    }

    fn len(&self) -> usize {
        let parts = [&self.permitted, &self.excluded];
        parts.iter().map(|own| own.names.len() + own.networks.len()).sum()
    }

    /// Checks all names of a certificate below.
    fn check(&self, names: &GeneralNames<'_>) -> Result<(), Unverified> {
        let refused = |name: &str| Err(Unverified::Name(crate::peer::shortened(name)));
        for address in &names.addresses {
            if !self.allows(|own| &own.networks, |network| holds(network, address)) {
                return refused("an address");
            }
        }
        for name in &names.dns {
            let allowed = is_domain(name) && self.allows_domain(|own| &own.names.dns, name);
            if !allowed {
                return refused(name);
            }
        }
        for uri in &names.uris {
            let allowed = host(uri).is_some_and(|host| self.allows_domain(|own| &own.names.uris, host));
            if !allowed {
                return refused(uri);
            }
        }
        for email in &names.emails {
            if !mailbox(email).is_some_and(|own| self.allows_mailbox(own)) {
                return refused(email);
            }
        }
        Ok(())
    }

    /// Within one of those that are permitted, where any are, and in none that is excluded.
    fn allows<'b, T: 'b>(
        &'b self,
        of: impl Fn(&'b Subtrees<'a>) -> &'b Vec<T>,
        mut fits: impl FnMut(&'b T) -> bool,
    ) -> bool {
        let permitted = of(&self.permitted);
        let is_permitted = permitted.is_empty() || permitted.iter().any(&mut fits);
        is_permitted && !of(&self.excluded).iter().any(fits)
    }

    fn allows_domain<'b>(&'b self, of: impl Fn(&'b Subtrees<'a>) -> &'b Vec<&'a str>, name: &str) -> bool {
        let covers_wildcard = |own: &&str| is_below_wildcard(own, name);
        self.allows(&of, |own| is_within(own, name)) && !of(&self.excluded).iter().any(covers_wildcard)
    }

    fn allows_mailbox(&self, (local, domain): (&str, &str)) -> bool {
        let fits = |own: &&str| match own.rsplit_once('@') {
            Some((of, at)) => of == local && at.eq_ignore_ascii_case(domain),
            None => is_within(own, domain),
        };
        self.allows(|own| &own.names.emails, fits)
    }
}

impl<'a> Subtrees<'a> {
    /// Reports as well whether there is a kind of name that is not compared.
    fn read(mut list: Reader<'a>) -> Result<(Self, bool), Malformed> {
        const WHAT: &str = "a name constraint";
        let (mut own, mut has_others) = (Self::default(), false);
        while !list.is_empty() {
            let mut subtree = list.inner(SEQUENCE, WHAT)?;
            let base = subtree.element().ok_or(Malformed(WHAT))?;
            let text = || ascii(base.content);
            let domain = || text().and_then(|own| is_constraint(own).then_some(own).ok_or(Malformed(WHAT)));
            match base.tag {
                DNS => own.names.dns.push(domain()?),
                URI => own.names.uris.push(domain()?),
                EMAIL if text()?.contains('@') => {
                    mailbox(text()?).ok_or(Malformed(WHAT))?;
                    own.names.emails.push(text()?);
                }
                EMAIL => own.names.emails.push(domain()?),
                ADDRESS => own.networks.push(network(base.content).ok_or(Malformed(WHAT))?),
                _ => has_others = true,
            }
        }
        Ok((own, has_others))
    }
}

/// Checks the names of a chain, the leaf first, against the constraints of those above each of them.
pub(crate) fn check(chain: &[&Certificate<'_>]) -> Result<(), Unverified> {
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

fn network(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (address, mask) = matches!(value.len(), 8 | 32).then(|| value.split_at(value.len() / 2))?;
    let ones: u32 = mask.iter().map(|byte| byte.leading_ones()).sum();
    let all: u32 = mask.iter().map(|byte| byte.count_ones()).sum();
    let past = mask.iter().position(|byte| *byte != 0xff).unwrap_or(mask.len());
    // Ones first, then zeros.
    let is_mask = ones == all && mask.iter().skip(past + 1).all(|byte| *byte == 0);
    is_mask.then_some((address, mask))
}

fn holds((network, mask): &(&[u8], &[u8]), address: &[u8]) -> bool {
    let masked = network.iter().zip(*mask).zip(address);
    network.len() == address.len()
        && masked
            .into_iter()
            .all(|((own, mask), other)| own & mask == other & mask)
}

/// Labels of visible characters, none of them empty, or nothing.
fn is_domain(name: &str) -> bool {
    let is_label = |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_graphic());
    name.is_empty() || name.split('.').all(is_label)
}

/// A domain, perhaps with a dot before it.
fn is_constraint(name: &str) -> bool {
    let own = name.strip_prefix('.');
    own.map_or_else(|| is_domain(name), |own| !own.is_empty() && is_domain(own))
}

/// A domain holds itself and what is below it, with a dot before it the latter alone. The empty one holds all.
fn is_within(constraint: &str, name: &str) -> bool {
    let Some(at) = name.len().checked_sub(constraint.len()) else {
        return false;
    };
    let Some((before, end)) = name.split_at_checked(at) else {
        return false;
    };
    let is_at_label =
        at == 0 || constraint.is_empty() || constraint.starts_with('.') || before.ends_with('.');
    is_at_label && end.eq_ignore_ascii_case(constraint)
}

/// A wildcard stands for the constraint's name among others.
fn is_below_wildcard(constraint: &str, name: &str) -> bool {
    let parent = |own: &str| own.find('.').map(|at| own[at..].to_ascii_lowercase());
    name.starts_with('*') && parent(constraint).is_some() && parent(constraint) == parent(name)
}

/// The host of a URI that names a domain; `None` where it has none, or an address.
fn host(uri: &str) -> Option<&str> {
    let (_, rest) = uri.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    let is_address = host.contains([':', '[', ']', '%']) || host.parse::<std::net::IpAddr>().is_ok();
    (!host.is_empty() && !is_address && is_domain(host)).then_some(host)
}

/// Parts of an address of mail. Go also reads local parts in quotes, which no authority here has been seen to use.
fn mailbox(email: &str) -> Option<(&str, &str)> {
    const SIGNS: &[u8] = b"!#$%&'*+-/=?^_`{|}~.";
    let (local, domain) = email.rsplit_once('@')?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || SIGNS.contains(&byte);
    let is_local = local.bytes().all(is_plain) && local.split('.').all(|part| !part.is_empty());
    (is_local && !domain.is_empty() && is_domain(domain)).then_some((local, domain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lie_within_constraints_as_in_go() {
        for (constraint, name, expected) in [
            ("example.com", "example.com", true),
            ("example.com", "A.Example.com", true),
            ("example.com", "testexample.com", false),
            (".example.com", "a.example.com", true),
            (".example.com", "example.com", false),
            ("a.example.com", "example.com", false),
            ("", "anything", true),
            ("ä", "bää", false),
        ] {
            assert_eq!(is_within(constraint, name), expected, "{constraint} {name}");
        }
        assert!(is_below_wildcard("foo.example.com", "*.Example.com"));
        assert!(!is_below_wildcard("foo.example.com", "bar.example.com"));
        assert!(!is_below_wildcard("com", "*"));
    }

    #[test]
    fn names_are_taken_apart_as_in_go() {
        for (uri, expected) in [
            ("spiffe://example.com/ns/a", Some("example.com")),
            ("https://user@example.com:443?x", Some("example.com")),
            ("https://[::1]/", None),
            ("https://192.0.2.1/", None),
            ("https:///x", None),
            ("urn:x", None),
        ] {
            assert_eq!(host(uri), expected, "{uri}");
        }
        assert_eq!(mailbox("a.b@example.com"), Some(("a.b", "example.com")));
        for wrong in ["a", "a@", "a..b@c", "\"a b\"@c", "a@c.", "a b@c"] {
            assert_eq!(mailbox(wrong), None, "{wrong}");
        }
        for (mask, expected) in [
            ([255, 255, 0, 0], true),
            ([255, 128, 0, 0], true),
            ([0, 0, 0, 0], true),
            ([255, 0, 255, 0], false),
            ([255, 129, 0, 0], false),
        ] {
            let value = [&[10, 0, 0, 0], mask.as_slice()].concat();
            assert_eq!(network(&value).is_some(), expected, "{mask:?}");
        }
        let network = network(&[10, 1, 0, 0, 255, 255, 0, 0]).unwrap();
        assert!(holds(&network, &[10, 1, 9, 9]));
        assert!(!holds(&network, &[10, 2, 9, 9]));
        assert!(!holds(&network, &[0; 16]));
    }
}
