//! Operations of the API as admission has them.

/// The operation that admission decides about (upstream's `admission.Operation`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

impl Operation {
    /// All of them.
    pub const ALL: &'static [Self] = &[Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// The word of upstream's messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}
