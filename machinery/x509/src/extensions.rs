//! Extensions of a certificate: those that restrict what it may sign, as Go's `processExtensions` reads them.

use crate::constraints::NameConstraints;
use crate::der::{
    INTEGER, Malformed, OBJECT_IDENTIFIER, OCTET_STRING, Reader, SEQUENCE, constructed, context,
};
use crate::general_names::GeneralNames;
use std::collections::BTreeSet;

/// All extensions that are read here, but for one, are `id-ce` (2.5.29) and a number.
const CERTIFICATE_EXTENSION: &[u8] = &[0x55, 0x1d];
const AUTHORITY_INFORMATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 1, 1];
const CLIENT_AUTHENTICATION: &[u8] = &[0x2b, 6, 1, 5, 5, 7, 3, 2];
const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0];
const ANY_POLICY: &[u8] = &[0x55, 0x1d, 0x20, 0];
/// The bit of `keyCertSign`.
const SIGNS_CERTIFICATES: u16 = 1 << 5;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Extensions<'a> {
    /// Of `basicConstraints`.
    pub(crate) authority: Option<BasicConstraints>,
    key_usage: u16,
    /// `false` where other usages than clients' are listed.
    pub(crate) is_for_clients: bool,
    has_usages: bool,
    pub(crate) subject_key_id: &'a [u8],
    pub(crate) authority_key_id: &'a [u8],
    /// As it came, to distinguish two certificates of one key.
    pub(crate) alternative_names: Option<&'a [u8]>,
    pub(crate) names: GeneralNames<'a>,
    pub(crate) name_constraints: Option<NameConstraints<'a>>,
    /// Certificates below it must have a policy that its authority knows.
    pub(crate) requires_policy: bool,
    /// Maps the policy that stands for all of them, which RFC 5280 forbids.
    pub(crate) maps_any_policy: bool,
    /// A critical extension that is not understood.
    pub(crate) has_unknown_critical: bool,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct BasicConstraints {
    pub(crate) is_authority: bool,
    /// Intermediate certificates below it, at most.
    pub(crate) max_path: Option<u64>,
}

/// One of them.
struct Extension<'a> {
    id: &'a [u8],
    is_critical: bool,
    value: &'a [u8],
}

impl<'a> Extension<'a> {
    fn read(mut own: Reader<'a>) -> Result<Self, Malformed> {
        const WHAT: &str = "an extension";
        Ok(Self {
            id: own.identifier(WHAT)?,
            is_critical: own.optional_boolean(WHAT)?,
            value: own.expect(OCTET_STRING, WHAT)?.content,
        })
    }

    fn sequence(&self, what: &'static str) -> Result<Reader<'a>, Malformed> {
        Reader::new(self.value).inner(SEQUENCE, what)
    }

    fn never_critical(&self, what: &'static str) -> Result<(), Malformed> {
        match self.is_critical {
            true => Err(Malformed(what)),
            false => Ok(()),
        }
    }
}

impl<'a> Extensions<'a> {
    pub(crate) fn read(mut list: Reader<'a>) -> Result<Self, Malformed> {
        let (mut own, mut seen) = (Self::default(), BTreeSet::new());
        while !list.is_empty() {
            let extension = Extension::read(list.inner(SEQUENCE, "an extension")?)?;
            if !seen.insert(extension.id) {
                return Err(Malformed("an extension that is there twice"));
            }
            let is_known = own.take(&extension)?;
            own.has_unknown_critical |= extension.is_critical && !is_known;
        }
        Ok(own)
    }

    /// Reports whether the key may sign certificates.
    pub(crate) fn signs_certificates(&self) -> bool {
        self.key_usage == 0 || self.key_usage & SIGNS_CERTIFICATES != 0
    }

    /// Reports whether clients may be proven with it, or with what it signs.
    pub(crate) fn serves_clients(&self) -> bool {
        !self.has_usages || self.is_for_clients
    }

    /// Reports whether it is one that is understood.
    fn take(&mut self, extension: &Extension<'a>) -> Result<bool, Malformed> {
        let number = match extension.id.strip_prefix(CERTIFICATE_EXTENSION) {
            Some([number]) => *number,
            _ if extension.id == AUTHORITY_INFORMATION => {
                extension.never_critical("critical authority information")?;
                return authority_information(extension).map(|()| true);
            }
            _ => return Ok(false),
        };
        match number {
            14 => self.take_subject_key_id(extension)?,
            15 => self.key_usage = Reader::new(extension.value).first_bits("a key usage")?,
            17 => {
                self.alternative_names = Some(extension.value);
                self.names = GeneralNames::read(extension.sequence("alternative names")?)?;
                return Ok(!self.names.is_empty());
            }
            19 => self.authority = Some(basic_constraints(extension)?),
            30 => {
                let (constraints, is_whole) = NameConstraints::read(Reader::new(extension.value))?;
                self.name_constraints = Some(constraints);
                return Ok(is_whole);
            }
            31 => distribution_points(extension)?,
            32 => policies(extension)?,
            54 => Reader::new(extension.value).long_integer(INTEGER, "an inhibition of any policy")?,
            33 => self.maps_any_policy = maps_any_policy(extension)?,
            35 => self.take_authority_key_id(extension)?,
            36 => self.requires_policy = requires_policy(extension)?,
            37 => self.take_usages(extension)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn take_subject_key_id(&mut self, extension: &Extension<'a>) -> Result<(), Malformed> {
        const WHAT: &str = "a subject key identifier";
        extension.never_critical(WHAT)?;
        self.subject_key_id = Reader::new(extension.value).expect(OCTET_STRING, WHAT)?.content;
        Ok(())
    }

    fn take_authority_key_id(&mut self, extension: &Extension<'a>) -> Result<(), Malformed> {
        const WHAT: &str = "an authority key identifier";
        extension.never_critical(WHAT)?;
        let mut own = extension.sequence(WHAT)?;
        if own.is_next(context(0)) {
            self.authority_key_id = own.expect(context(0), WHAT)?.content;
        }
        Ok(())
    }

    fn take_usages(&mut self, extension: &Extension<'a>) -> Result<(), Malformed> {
        const WHAT: &str = "extended key usages";
        let mut own = extension.sequence(WHAT)?;
        while !own.is_empty() {
            let usage = own.identifier(WHAT)?;
            self.has_usages = true;
            self.is_for_clients |= usage == CLIENT_AUTHENTICATION || usage == ANY_USAGE;
        }
        Ok(())
    }
}

fn basic_constraints(extension: &Extension<'_>) -> Result<BasicConstraints, Malformed> {
    const WHAT: &str = "basic constraints";
    let mut own = extension.sequence(WHAT)?;
    Ok(BasicConstraints {
        is_authority: own.optional_boolean(WHAT)?,
        max_path: own.optional_small_integer(WHAT)?,
    })
}

fn requires_policy(extension: &Extension<'_>) -> Result<bool, Malformed> {
    const WHAT: &str = "policy constraints";
    let mut own = extension.sequence(WHAT)?;
    let requires = own.is_next(context(0));
    for number in [context(0), context(1)] {
        if own.is_next(number) {
            own.long_integer(number, WHAT)?;
        }
    }
    Ok(requires)
}

fn maps_any_policy(extension: &Extension<'_>) -> Result<bool, Malformed> {
    const WHAT: &str = "policy mappings";
    let (mut own, mut found) = (extension.sequence(WHAT)?, false);
    while !own.is_empty() {
        let mut pair = own.inner(SEQUENCE, WHAT)?;
        let mut policy = || pair.expect(OBJECT_IDENTIFIER, WHAT).map(|own| own.content);
        let pair = [policy()?, policy()?];
        found |= pair.contains(&ANY_POLICY);
    }
    Ok(found)
}

/// Policies that are not required are read all the same: each is there once.
fn policies(extension: &Extension<'_>) -> Result<(), Malformed> {
    const WHAT: &str = "policies";
    let (mut own, mut seen) = (extension.sequence(WHAT)?, BTreeSet::new());
    while !own.is_empty() {
        let policy = own
            .inner(SEQUENCE, WHAT)?
            .expect(OBJECT_IDENTIFIER, WHAT)?
            .content;
        let is_whole = policy.last().is_some_and(|last| last & 0x80 == 0);
        if !is_whole || !seen.insert(policy) {
            return Err(Malformed(WHAT));
        }
    }
    Ok(())
}

/// Reads where lists of revoked certificates are to be had.
fn distribution_points(extension: &Extension<'_>) -> Result<(), Malformed> {
    const WHAT: &str = "distribution points";
    let mut own = extension.sequence(WHAT)?;
    while !own.is_empty() {
        let mut point = own.inner(SEQUENCE, WHAT)?;
        let Some(mut name) = point.optional(constructed(0), WHAT)? else {
            continue;
        };
        let mut names = name.inner(constructed(0), WHAT)?;
        while names.is_next(context(6)) {
            names.expect(context(6), WHAT)?;
        }
    }
    Ok(())
}

fn authority_information(extension: &Extension<'_>) -> Result<(), Malformed> {
    const WHAT: &str = "authority information";
    let mut own = extension.sequence(WHAT)?;
    while !own.is_empty() {
        let mut access = own.inner(SEQUENCE, WHAT)?;
        access.identifier(WHAT)?;
        access.optional(context(6), WHAT)?;
    }
    Ok(())
}
