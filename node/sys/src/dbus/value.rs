//! Values of messages. Pure.

/// A basic value, or one of the arrays that systemd takes, which are written and never read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// `b`.
    Bool(bool),
    /// `i`.
    Int32(i32),
    /// `u`.
    Uint32(u32),
    /// `t`.
    Uint64(u64),
    /// `s`, `o` or `g`.
    Text(String),
    /// `h`: the place of a file among those of its message.
    Handle(u32),
    /// `as`.
    Texts(Vec<String>),
    /// `a(sv)`: properties of a unit by name.
    Properties(Vec<(&'static str, Value)>),
    /// `a(sa(sv))` without an element: the units beside the one that is started.
    NoUnits,
    /// Another number.
    Other,
}

impl Value {
    pub(super) fn signature(&self) -> &'static str {
        match self {
            Self::Bool(_) => "b",
            Self::Int32(_) => "i",
            Self::Uint32(_) => "u",
            Self::Uint64(_) => "t",
            Self::Text(_) => "s",
            Self::Handle(_) => "h",
            Self::Texts(_) => "as",
            Self::Properties(_) => "a(sv)",
            Self::NoUnits => "a(sa(sv))",
            Self::Other => "",
        }
    }
}
