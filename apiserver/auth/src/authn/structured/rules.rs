//! An issuer's entry that was checked, with its expressions.

use super::{Expression, Issuer};
use std::collections::BTreeMap;

/// See the module.
#[derive(Debug)]
pub struct JwtRules {
    pub(crate) issuer: Issuer,
    pub(crate) username: Mapping,
    /// None where no groups are made.
    pub(crate) groups: Option<Mapping>,
    pub(crate) uid: Option<Mapping>,
    pub(crate) extra: Vec<ExtraRule>,
    /// Values that claims must have.
    pub(crate) required: BTreeMap<String, String>,
    pub(crate) claims: Vec<ClaimRule>,
    pub(crate) users: Vec<UserRule>,
}

/// A part of a user, made of claims.
#[derive(Debug)]
pub(crate) enum Mapping {
    Claim { name: String, prefix: String },
    Expression(Expression),
}

/// An extra of a user.
#[derive(Debug)]
pub(crate) struct ExtraRule {
    pub(crate) key: String,
    pub(crate) values: Expression,
}

/// A condition on claims.
#[derive(Debug)]
pub(crate) struct ClaimRule {
    pub(crate) condition: Expression,
    pub(crate) message: String,
}

/// A condition on the user.
#[derive(Debug)]
pub(crate) struct UserRule {
    pub(crate) condition: Expression,
    pub(crate) message: String,
}

impl JwtRules {
    /// The issuer's URL.
    pub fn issuer(&self) -> &str {
        &self.issuer.url
    }
}
