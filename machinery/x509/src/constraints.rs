//! Name constraints: names that the certificates below an authority may have, and may not, as Go's `checkChainConstraints` has it.
//!
//! They are about alternative names; the common name, which is the user's, is not bound by them.

use crate::der::{Malformed, Reader, SEQUENCE, constructed};
use crate::domain::is_domain;
use crate::general_names::{ADDRESS, DNS, EMAIL, GeneralNames, URI, ascii};
use crate::mailbox::Mailbox;
use crate::text::shortened;
use crate::unverified::Unverified;
use crate::uri;
use std::net::IpAddr;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct NameConstraints<'a> {
    permitted: Subtrees<'a>,
    excluded: Subtrees<'a>,
}

#[derive(Debug, Default)]
struct Subtrees<'a> {
    dns: Vec<&'a str>,
    uris: Vec<&'a str>,
    mail_domains: Vec<&'a str>,
    mailboxes: Vec<Mailbox<'a>>,
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

    /// Returns how many names are compared with each name below.
    pub(crate) fn len(&self) -> usize {
        let parts = [&self.permitted, &self.excluded];
        parts.iter().map(|own| own.len()).sum()
    }

    /// Checks all names of a certificate below.
    pub(crate) fn check(&self, names: &GeneralNames<'_>) -> Result<(), Unverified> {
        let refused = |name: &str| Err(Unverified::Name(shortened(name)));
        for address in &names.addresses {
            if !self.allows(|own| &own.networks, |network| holds(network, address)) {
                return refused("an address");
            }
        }
        for name in &names.dns {
            let allowed = is_domain(name) && self.allows_domain(|own| &own.dns, name);
            if !allowed {
                return refused(name);
            }
        }
        for uri in &names.uris {
            let host = uri::host(uri).unwrap_or_default();
            if !uri::domain(&host).is_some_and(|own| self.allows_domain(|own| &own.uris, own)) {
                return refused(uri);
            }
        }
        for email in &names.emails {
            if !Mailbox::read(email).is_some_and(|own| self.allows_mailbox(&own)) {
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

    fn allows_mailbox(&self, mailbox: &Mailbox<'_>) -> bool {
        let (permitted, excluded) = (&self.permitted, &self.excluded);
        let is_bound = !permitted.mailboxes.is_empty() || !permitted.mail_domains.is_empty();
        let covers_wildcard = |own: &&str| is_below_wildcard(own, mailbox.domain);
        (!is_bound || permitted.holds(mailbox))
            && !excluded.holds(mailbox)
            && !excluded.mail_domains.iter().any(covers_wildcard)
    }
}

impl<'a> Subtrees<'a> {
    fn len(&self) -> usize {
        let names = self.dns.len() + self.uris.len() + self.mail_domains.len() + self.mailboxes.len();
        names + self.networks.len()
    }

    fn holds(&self, mailbox: &Mailbox<'_>) -> bool {
        let is_same = |own: &Mailbox<'_>| own == mailbox;
        let is_within = |own: &&str| is_within(own, mailbox.domain);
        self.mailboxes.iter().any(is_same) || self.mail_domains.iter().any(is_within)
    }

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
                DNS => own.dns.push(domain()?),
                URI if text()?.parse::<IpAddr>().is_ok() => return Err(Malformed(WHAT)),
                URI => own.uris.push(domain()?),
                EMAIL if text()?.contains('@') => {
                    own.mailboxes.push(Mailbox::read(text()?).ok_or(Malformed(WHAT))?);
                }
                EMAIL => own.mail_domains.push(domain()?),
                ADDRESS => own.networks.push(network(base.content).ok_or(Malformed(WHAT))?),
                _ => has_others = true,
            }
        }
        Ok((own, has_others))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::general_names::read_uri;

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

    fn constraints<'a>(permitted: Subtrees<'a>, excluded: Subtrees<'a>) -> NameConstraints<'a> {
        NameConstraints { permitted, excluded }
    }

    /// Each answer is that of Go's `checkChainConstraints`.
    #[test]
    fn mailboxes_lie_within_constraints_as_in_go() {
        let domains = |mail_domains: &[&'static str], mailboxes: &[&'static str]| Subtrees {
            mail_domains: mail_domains.to_vec(),
            mailboxes: mailboxes.iter().map(|own| Mailbox::read(own).unwrap()).collect(),
            ..Subtrees::default()
        };
        let permits = |own| constraints(own, Subtrees::default());
        let excludes = |own| constraints(Subtrees::default(), own);
        let mail = "example.com";
        for (case, constraints, name, expected) in [
            ("domain", permits(domains(&[mail], &[])), "a@Example.com", true),
            ("another", permits(domains(&[mail], &[])), "a@example.org", false),
            (
                "escaped",
                permits(domains(&[mail], &[])),
                r"a\ b@example.com",
                true,
            ),
            (
                "quoted",
                permits(domains(&[mail], &[])),
                "\"a b\"@example.com",
                true,
            ),
            ("no domain", permits(domains(&[mail], &[])), "a@", false),
            ("no domain", excludes(domains(&[mail], &[])), "a@", true),
            ("no mailbox", excludes(domains(&[mail], &[])), "a b@x", false),
            (
                "wildcard",
                excludes(domains(&["bad.example.com"], &[])),
                "a@*.example.com",
                false,
            ),
            (
                "wildcard",
                permits(domains(&["bad.example.com"], &[])),
                "a@*.example.com",
                false,
            ),
            ("mailbox", permits(domains(&[], &["\"a\"@x"])), "a@X", true),
            ("mailbox", permits(domains(&[], &["a@x"])), "A@x", false),
            ("either", permits(domains(&[mail], &["a@x"])), "a@x", true),
        ] {
            let names = GeneralNames {
                emails: vec![name],
                ..GeneralNames::default()
            };
            assert_eq!(constraints.check(&names).is_ok(), expected, "{case} {name}");
        }
    }

    /// Each answer is that of Go's `checkChainConstraints`.
    #[test]
    fn uris_lie_within_constraints_as_in_go() {
        let example = || Subtrees {
            uris: vec!["example.com"],
            ..Subtrees::default()
        };
        let permitted = constraints(example(), Subtrees::default());
        let excluded = constraints(Subtrees::default(), example());
        for (uri, within, beside) in [
            ("//example.com/x", true, false),
            ("spiffe://EXAMPLE.com:1/x", true, false),
            ("spiffe://example.org", false, true),
            ("https://:443/", false, true),
            ("urn:a://example.com", false, false),
            ("https://192.0.2.1", false, false),
            ("https://[::1]:1", false, false),
        ] {
            let names = GeneralNames {
                uris: vec![read_uri(uri).unwrap()],
                ..GeneralNames::default()
            };
            assert_eq!(permitted.check(&names).is_ok(), within, "{uri}");
            assert_eq!(excluded.check(&names).is_ok(), beside, "{uri}");
        }
        for wrong in ["http://a b/%zz", "spiffe://x./y", "https://a..b/"] {
            assert!(read_uri(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn uri_constraint_is_no_address() {
        let read = |name: &[u8]| {
            let element = [&[URI, u8::try_from(name.len()).unwrap()], name].concat();
            let subtree = [&[SEQUENCE, u8::try_from(element.len()).unwrap()], &*element].concat();
            Subtrees::read(Reader::new(&subtree)).is_ok()
        };
        assert!(read(b"example.com") && read(b".example.com"));
        assert!(!read(b"192.0.2.1") && !read(b"::1") && !read(b"example.com."));
    }

    #[test]
    fn networks_hold_addresses_as_in_go() {
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
