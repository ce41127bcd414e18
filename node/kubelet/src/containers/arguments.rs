//! The room that Linux has for a program's arguments and environment, and `$(NAME)` in them.
//!
//! A container beyond it could not be started; it is refused before its text fills the agent's memory.

use std::fmt;

use super::StartError;

/// The longest string, its NUL included (`MAX_ARG_STRLEN`).
const STRING_BYTES_MAX: usize = 128 << 10;
/// All strings and the pointers to them: three quarters of 8 MiB, whatever the stack's limit (`bprm_stack_limits`). A
/// runtime with a smaller stack refuses less by itself.
const ALL_BYTES_MAX: usize = 6 << 20;
/// Bytes that are copied on the way there, with variables that later ones replace: these give their room back, and no time.
const COPIED_BYTES_MAX: usize = 4 * ALL_BYTES_MAX;
/// The NUL of a string, and the pointer to it.
const STRING_OVERHEAD_BYTES: usize = 1 + 8;
/// Characters of a variable's name that a message holds.
const NAME_CHARS_SHOWN: usize = 253;

/// One string of a program's arguments and environment.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument<'a> {
    /// A variable of this name.
    Variable(&'a str),
    /// An element of `command` or `args`.
    Word(&'static str, usize),
}

impl Argument<'_> {
    /// Bytes of the string before the value.
    fn prefix_bytes(self) -> usize {
        match self {
            Self::Variable(name) => name.len() + 1,
            Self::Word(..) => 0,
        }
    }
}

impl fmt::Display for Argument<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable(name) => {
                let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
                write!(f, "environment variable {shown:?}")
            }
            Self::Word(field, at) => write!(f, "{field}[{at}]"),
        }
    }
}

/// The room that is left.
#[derive(Debug)]
pub(super) struct ArgumentRoom {
    bytes_left: usize,
    /// Bytes that may still be copied, replaced ones included.
    copies_left: usize,
}

impl ArgumentRoom {
    /// A program's whole room.
    pub(super) fn new() -> Self {
        Self {
            bytes_left: ALL_BYTES_MAX,
            copies_left: COPIED_BYTES_MAX,
        }
    }

    /// Takes the room of a string.
    pub(super) fn take(&mut self, argument: Argument<'_>, value_bytes: usize) -> Result<(), StartError> {
        let bytes = argument.prefix_bytes().saturating_add(value_bytes);
        if bytes >= STRING_BYTES_MAX {
            return Err(too_long(argument));
        }
        let room = bytes + STRING_OVERHEAD_BYTES;
        let left = self.copies_left.checked_sub(room);
        self.copies_left = left.ok_or_else(|| too_many_copies(argument))?;
        let left = self.bytes_left.checked_sub(room);
        self.bytes_left = left.ok_or_else(|| too_much(argument))?;
        Ok(())
    }

    /// Gives back the room of a variable that a later one replaces.
    pub(super) fn give_back(&mut self, name_bytes: usize, value_bytes: usize) {
        self.bytes_left += name_bytes + 1 + value_bytes + STRING_OVERHEAD_BYTES;
    }

    /// Expands a value, no further than there is room, and takes its room.
    pub(super) fn expand<'v>(
        &mut self,
        argument: Argument<'_>,
        input: &str,
        value: impl Fn(&str) -> Option<&'v str>,
    ) -> Result<String, StartError> {
        let expanded = expand(input, STRING_BYTES_MAX, value).ok_or_else(|| too_long(argument))?;
        self.take(argument, expanded.len())?;
        Ok(expanded)
    }
}

fn too_long(argument: Argument<'_>) -> StartError {
    StartError::config(format!(
        "{argument} is longer than {STRING_BYTES_MAX} bytes, the most that Linux takes"
    ))
}

fn too_much(argument: Argument<'_>) -> StartError {
    StartError::config(format!(
        "{argument}: arguments and environment are larger than {ALL_BYTES_MAX} bytes together, the most that Linux takes"
    ))
}

fn too_many_copies(argument: Argument<'_>) -> StartError {
    StartError::config(format!(
        "{argument}: variables that replace one another have more than {COPIED_BYTES_MAX} bytes"
    ))
}

/// Replaces `$(NAME)` by its value where there is one; `$$` stands for a dollar sign. `None` where that makes more bytes.
pub(super) fn expand<'v>(
    input: &str,
    bytes_max: usize,
    value: impl Fn(&str) -> Option<&'v str>,
) -> Option<String> {
    let mut out = String::new();
    let mut push = |text: &str| {
        let fits = out.len() + text.len() <= bytes_max;
        fits.then(|| out.push_str(text))
    };
    let mut rest = input;
    // Behind the last parenthesis nothing is searched for one again and again.
    let last = input.rfind(')').map_or("", |at| &input[at..]).len();
    while let Some(at) = rest.find('$') {
        push(&rest[..at])?;
        let after = &rest[at + 1..];
        let reference = after
            .strip_prefix('(')
            .filter(|inner| inner.len() >= last && last > 0);
        if let Some(tail) = after.strip_prefix('$') {
            push("$")?;
            rest = tail;
        } else if let Some((name, tail)) = reference.and_then(|inner| inner.split_once(')')) {
            push(value(name).unwrap_or(&rest[at..at + name.len() + 3]))?;
            rest = tail;
        } else {
            push("$")?;
            rest = after;
        }
    }
    push(rest)?;
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(input: &str, expected: &str) {
        let value = |name: &str| (name == "A").then_some("1");
        assert_eq!(expand(input, 16, value).as_deref(), Some(expected));
    }

    #[test]
    fn references_expand_as_upstreams() {
        check("x-$(A)-y", "x-1-y");
        check("$(B)", "$(B)");
        check("$$(A)", "$(A)");
        check("$(A", "$(A");
        check("$(A)$(A", "1$(A");
        check("$($(A)", "$($(A)");
        check("$(A)$($$", "1$($");
        check("$A 5$", "$A 5$");
    }

    /// Inputs of upstream's table (expand_test.go), with what comes out.
    #[test]
    fn references_expand_as_in_upstreams_table() {
        let value = |name: &str| match name {
            "VAR_A" => Some("A"),
            "VAR_B" => Some("B"),
            "VAR_C" => Some("C"),
            "VAR_REF" => Some("$(VAR_A)"),
            "VAR_EMPTY" => Some(""),
            _ => None,
        };
        for (input, expected) in [
            ("$(VAR_A)", "A"),
            ("$(VAR_A)-$(VAR_A)", "A-A"),
            ("$(VAR_A)-1", "A-1"),
            ("___$(VAR_B)___", "___B___"),
            ("___$(VAR_C)", "___C"),
            ("$(VAR_A)_$(VAR_B)_$(VAR_C)", "A_B_C"),
            ("$$(VAR_B)_$(VAR_A)", "$(VAR_B)_A"),
            ("$$(VAR_A)_$$(VAR_B)", "$(VAR_A)_$(VAR_B)"),
            ("f000-$$VAR_A", "f000-$VAR_A"),
            (r"foo\$(VAR_C)bar", r"foo\Cbar"),
            (r"foo\\$(VAR_C)bar", r"foo\\Cbar"),
            (r"foo\\\\$(VAR_A)bar", r"foo\\\\Abar"),
            ("$(VAR_A$(VAR_B))", "$(VAR_A$(VAR_B))"),
            ("$(VAR_A$(VAR_B)", "$(VAR_A$(VAR_B)"),
            ("$(VAR_REF)", "$(VAR_A)"),
            ("%%$(VAR_REF)--$(VAR_REF)%%", "%%$(VAR_A)--$(VAR_A)%%"),
            ("foo$(VAR_EMPTY)bar", "foobar"),
            ("$$$$$$(BIG_MONEY)", "$$$(BIG_MONEY)"),
            ("$$$$$$(VAR_A)", "$$$(VAR_A)"),
            ("$$$$$$$(GOOD_ODDS)", "$$$$(GOOD_ODDS)"),
            ("$$$$$$$(VAR_A)", "$$$A"),
            ("$(VAR_B)_______$(A", "B_______$(A"),
            ("$(VAR_C)_______$(", "C_______$("),
            ("$(VAR_A)foobarzab$", "Afoobarzab$"),
        ] {
            assert_eq!(expand(input, 64, value).as_deref(), Some(expected), "{input}");
        }
        for unchanged in [
            "",
            "\n",
            "foo$(VAR_Awhoops!",
            "f00__(VAR_A)__",
            "$?_boo_$!",
            "$VAR_A",
            "$VAR_A)",
            "${VAR_A}",
            "$(VAR_DNE)",
            "$(foo$$var)",
            r"foo-\$(VAR_A",
            "--$($($($($--",
            "$($($($($--foo$(",
            "foo0--$($($($(",
            "$£FOO",
            "prefix-$€-suffix",
            "$中文",
        ] {
            assert_eq!(expand(unchanged, 64, value).as_deref(), Some(unchanged));
        }
    }

    #[test]
    fn expansion_ends_where_it_grows_too_large() {
        let lookups = std::cell::Cell::new(0);
        let value = |_: &str| {
            lookups.set(lookups.get() + 1);
            Some("1234")
        };
        assert_eq!(expand("$(A)$(A)", 8, value).as_deref(), Some("12341234"));
        lookups.set(0);
        assert_eq!(expand(&"$(A)".repeat(100), 8, value), None);
        assert_eq!(lookups.get(), 3, "what does not fit is looked up once");
    }

    #[test]
    fn room_is_taken_up_to_the_last_byte() {
        let longest = STRING_BYTES_MAX - 1;
        let mut room = ArgumentRoom::new();
        room.take(Argument::Variable("A"), longest - 1).unwrap_err();
        for at in 0..47 {
            room.take(Argument::Word("args", at), longest).unwrap();
        }
        let left = ALL_BYTES_MAX - 47 * (longest + STRING_OVERHEAD_BYTES) - STRING_OVERHEAD_BYTES;
        room.take(Argument::Word("args", 47), left + 1).unwrap_err();
        room.take(Argument::Word("args", 47), left).unwrap();
        let error = room.take(Argument::Word("args", 48), 0).unwrap_err();
        assert!(error.message.starts_with("args[48]: "), "{error}");
    }
}
