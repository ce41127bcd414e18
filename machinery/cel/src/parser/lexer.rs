//! Tokens of an expression.

use crate::source::{Issues, Source};

/// Kind of a token, in the order in which upstream's grammar has them: sets of expected tokens are shown in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    LBracket,
    RBracket,
    LBrace,
    RBrace,
    LParen,
    RParen,
    Dot,
    Comma,
    Minus,
    Exclam,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    String,
    Bytes,
    Ident,
    EscIdent,
}

impl Kind {
    /// Name in a list of expected tokens.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Eof => "<EOF>",
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::LBracket => "'['",
            Self::RBracket => "']'",
            Self::LBrace => "'{'",
            Self::RBrace => "'}'",
            Self::LParen => "'('",
            Self::RParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Exclam => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::String => "STRING",
            Self::Bytes => "BYTES",
            Self::Ident => "IDENTIFIER",
            Self::EscIdent => "ESC_IDENTIFIER",
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Token {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Reads all tokens; what is none is reported and left out.
pub(super) fn tokens(source: &Source, issues: &mut Issues) -> Vec<Token> {
    let (chars, mut out, mut at) = (&source.chars, Vec::new(), 0);
    while at < chars.len() {
        if matches!(chars[at], '\t' | ' ' | '\r' | '\n' | '\u{c}') {
            at += 1;
        } else if chars[at] == '/' && chars.get(at + 1) == Some(&'/') {
            at += chars[at..].iter().take_while(|own| **own != '\n').count();
        } else {
            let lexer = Lexer { chars, start: at };
            match lexer.token() {
                Ok((kind, end)) => {
                    out.push(Token { kind, start: at, end });
                    at = end;
                }
                Err(failed) => {
                    let end = (failed + 1).min(chars.len());
                    let text: String = chars[at..end].iter().collect();
                    let message = format!("Syntax error: token recognition error at: '{text}'");
                    issues.report(source.location(at), message);
                    at = end;
                }
            }
        }
    }
    out.push(Token {
        kind: Kind::Eof,
        start: chars.len(),
        end: chars.len(),
    });
    out
}

/// Text of a token in a message.
pub(super) fn shown(chars: &[char]) -> String {
    let text: String = chars.iter().collect();
    text.replace('\n', "\\n")
        .replace('\r', "\\r")
        .replace('\t', "\\t")
}

struct Lexer<'c> {
    chars: &'c [char],
    start: usize,
}

/// Kind and end of a token, or the place where none can be.
type Found = Result<(Kind, usize), usize>;

impl Lexer<'_> {
    fn peek(&self, at: usize) -> char {
        self.chars.get(at).copied().unwrap_or('\0')
    }

    fn token(&self) -> Found {
        let (at, first) = (self.start, self.peek(self.start));
        let second = self.peek(at + 1);
        match first {
            'a'..='z' | 'A'..='Z' | '_' => Ok(self.word()),
            '0'..='9' => Ok(self.number()),
            '.' if second.is_ascii_digit() => Ok(self.number()),
            '"' | '\'' => self.string(at, false).map(|end| (Kind::String, end)),
            '`' => self.escaped_ident(),
            '=' | '!' | '<' | '>' if second == '=' => Ok((two(first), at + 2)),
            '&' if second == '&' => Ok((Kind::And, at + 2)),
            '|' if second == '|' => Ok((Kind::Or, at + 2)),
            '=' | '&' | '|' => Err(at + 1),
            _ => one(first).map(|kind| (kind, at + 1)).ok_or(at),
        }
    }

    fn word(&self) -> (Kind, usize) {
        if let Some(found) = self.prefixed_string() {
            return found;
        }
        let length = self.chars[self.start..]
            .iter()
            .take_while(|own| own.is_ascii_alphanumeric() || **own == '_')
            .count();
        let end = self.start + length;
        let word: String = self.chars[self.start..end].iter().collect();
        let kind = match word.as_str() {
            "in" => Kind::In,
            "true" => Kind::True,
            "false" => Kind::False,
            "null" => Kind::Null,
            _ => Kind::Ident,
        };
        (kind, end)
    }

    /// A string after `r`, `b` or `br`.
    fn prefixed_string(&self) -> Option<(Kind, usize)> {
        let mut at = self.start;
        let bytes = matches!(self.peek(at), 'b' | 'B');
        at += usize::from(bytes);
        let raw = matches!(self.peek(at), 'r' | 'R');
        at += usize::from(raw);
        if at == self.start || !matches!(self.peek(at), '"' | '\'') {
            return None;
        }
        let end = self.string(at, raw).ok()?;
        Some((if bytes { Kind::Bytes } else { Kind::String }, end))
    }

    /// End of the string that begins with a quote at `at`.
    fn string(&self, at: usize, raw: bool) -> Result<usize, usize> {
        let quote = self.peek(at);
        if self.peek(at + 1) == quote && self.peek(at + 2) == quote {
            // Without its end it is an empty string, and another after it.
            return Ok(self.closed(at + 3, quote, raw, true).unwrap_or(at + 2));
        }
        self.closed(at + 1, quote, raw, false)
    }

    fn closed(&self, mut at: usize, quote: char, raw: bool, triple: bool) -> Result<usize, usize> {
        while let Some(own) = self.chars.get(at) {
            match own {
                '\n' | '\r' if !triple => return Err(at),
                '\\' if !raw => at = self.escape(at)?,
                _ if *own == quote && !triple => return Ok(at + 1),
                _ if *own == quote && self.peek(at + 1) == quote && self.peek(at + 2) == quote => {
                    return Ok(at + 3);
                }
                _ => at += 1,
            }
        }
        Err(at)
    }

    /// End of an escape sequence.
    fn escape(&self, at: usize) -> Result<usize, usize> {
        let hex = |from: usize, count: usize| {
            let wrong = (from..from + count).find(|at| !self.peek(*at).is_ascii_hexdigit());
            wrong.map_or(Ok(from + count), Err)
        };
        match self.peek(at + 1) {
            'a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`' => Ok(at + 2),
            'x' | 'X' => hex(at + 2, 2),
            'u' => hex(at + 2, 4),
            'U' => hex(at + 2, 8),
            '0'..='3' => {
                let wrong = (at + 2..at + 4).find(|at| !matches!(self.peek(*at), '0'..='7'));
                wrong.map_or(Ok(at + 4), Err)
            }
            _ => Err(at + 1),
        }
    }

    fn escaped_ident(&self) -> Found {
        let mut at = self.start + 1;
        let plain = |own: char| own.is_ascii_alphanumeric() || matches!(own, '_' | '.' | '-' | '/' | ' ');
        while plain(self.peek(at)) {
            at += 1;
        }
        if self.peek(at) == '`' && at > self.start + 1 {
            return Ok((Kind::EscIdent, at + 1));
        }
        Err(at)
    }

    fn digits(&self, mut at: usize) -> usize {
        while self.peek(at).is_ascii_digit() {
            at += 1;
        }
        at
    }

    fn number(&self) -> (Kind, usize) {
        let start = self.start;
        if self.peek(start) == '0' && self.peek(start + 1) == 'x' && self.peek(start + 2).is_ascii_hexdigit()
        {
            let mut at = start + 2;
            while self.peek(at).is_ascii_hexdigit() {
                at += 1;
            }
            return self.whole(at);
        }
        let mut at = self.digits(start);
        let mut float = false;
        if self.peek(at) == '.' && self.peek(at + 1).is_ascii_digit() {
            at = self.digits(at + 1);
            float = true;
        }
        if matches!(self.peek(at), 'e' | 'E') {
            let sign = usize::from(matches!(self.peek(at + 1), '+' | '-'));
            if self.peek(at + 1 + sign).is_ascii_digit() {
                at = self.digits(at + 1 + sign);
                float = true;
            }
        }
        if float { (Kind::Float, at) } else { self.whole(at) }
    }

    fn whole(&self, end: usize) -> (Kind, usize) {
        if matches!(self.peek(end), 'u' | 'U') {
            (Kind::Uint, end + 1)
        } else {
            (Kind::Int, end)
        }
    }
}

fn two(first: char) -> Kind {
    match first {
        '=' => Kind::Equals,
        '!' => Kind::NotEquals,
        '<' => Kind::LessEquals,
        _ => Kind::GreaterEquals,
    }
}

fn one(own: char) -> Option<Kind> {
    Some(match own {
        '<' => Kind::Less,
        '>' => Kind::Greater,
        '[' => Kind::LBracket,
        ']' => Kind::RBracket,
        '{' => Kind::LBrace,
        '}' => Kind::RBrace,
        '(' => Kind::LParen,
        ')' => Kind::RParen,
        '.' => Kind::Dot,
        ',' => Kind::Comma,
        '-' => Kind::Minus,
        '!' => Kind::Exclam,
        '?' => Kind::Question,
        ':' => Kind::Colon,
        '+' => Kind::Plus,
        '*' => Kind::Star,
        '/' => Kind::Slash,
        '%' => Kind::Percent,
        _ => return None,
    })
}
