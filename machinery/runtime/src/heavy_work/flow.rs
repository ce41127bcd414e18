//! Owners of heavy work.

use std::sync::Arc;

/// Owner of turns: an account, and the namespace that its request is about, where that counts. Time is charged to both, so
/// that neither many accounts in one namespace nor one account in many namespaces has more turns than others.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeavyFlow {
    debtors: Vec<Debtor>,
    is_administrator: bool,
}

/// One that time is charged to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Debtor {
    Account(Arc<str>),
    Namespace(Arc<str>),
}

impl HeavyFlow {
    /// Work of an account, whatever it is about.
    pub fn of_account(account: impl Into<Arc<str>>) -> Self {
        Self {
            debtors: vec![Debtor::Account(account.into())],
            is_administrator: false,
        }
    }

    /// Work that a component does for a namespace: what one namespace owes delays no other's.
    pub fn of_component(component: &str, namespace: &str) -> Self {
        Self::of_account(format!("{component} of {namespace}")).within(namespace)
    }

    /// Work of an administrator, which the reserved thread takes whatever the debt.
    pub fn of_administrator(account: impl Into<Arc<str>>) -> Self {
        Self {
            is_administrator: true,
            ..Self::of_account(account)
        }
    }

    /// The same, charged to a namespace as well.
    #[must_use]
    pub fn within(mut self, namespace: impl Into<Arc<str>>) -> Self {
        self.debtors.push(Debtor::Namespace(namespace.into()));
        self
    }

    /// The account that the work is of.
    pub fn account(&self) -> &str {
        self.debtors.iter().map(Debtor::name).next().unwrap_or_default()
    }

    pub(super) fn debtors(&self) -> &[Debtor] {
        &self.debtors
    }

    pub(super) fn is_administrator(&self) -> bool {
        self.is_administrator
    }
}

impl Debtor {
    fn name(&self) -> &str {
        let (Self::Account(name) | Self::Namespace(name)) = self;
        name
    }
}

impl From<&str> for HeavyFlow {
    fn from(account: &str) -> Self {
        Self::of_account(account)
    }
}
