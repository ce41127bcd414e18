//! Tokens that may come next, and the repair of one wrong token.

use super::lexer::{Kind, Token, shown};
use super::{Parser, Read, Stop};

/// Tokens with which an expression begins.
const EXPRESSION: [Kind; 15] = [
    Kind::LBracket,
    Kind::LBrace,
    Kind::LParen,
    Kind::Dot,
    Kind::Minus,
    Kind::Exclam,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::String,
    Kind::Bytes,
    Kind::Ident,
];

/// Operators, which may stand after a closed bracket.
fn follows(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Equals
            | Kind::NotEquals
            | Kind::In
            | Kind::Less
            | Kind::LessEquals
            | Kind::GreaterEquals
            | Kind::Greater
            | Kind::And
            | Kind::Or
            | Kind::Dot
            | Kind::Minus
            | Kind::Question
            | Kind::Plus
            | Kind::Star
            | Kind::Slash
            | Kind::Percent
    )
}

impl Parser<'_> {
    pub(super) fn token(&self) -> Token {
        self.tokens[self.at]
    }

    pub(super) fn peek(&self) -> Kind {
        self.token().kind
    }

    pub(super) fn peek_at(&self, ahead: usize) -> Kind {
        self.tokens.get(self.at + ahead).map_or(Kind::Eof, |own| own.kind)
    }

    pub(super) fn advance(&mut self) -> Token {
        let token = self.token();
        if token.kind != Kind::Eof {
            self.at += 1;
        }
        token
    }

    pub(super) fn eat(&mut self, kind: Kind) -> Option<Token> {
        (self.peek() == kind).then(|| self.advance())
    }

    pub(super) fn text(&self, token: Token) -> String {
        self.source.chars[token.start..token.end].iter().collect()
    }

    fn quoted(&self, token: Token) -> String {
        if token.kind == Kind::Eof {
            return "'<EOF>'".to_owned();
        }
        format!("'{}'", shown(&self.source.chars[token.start..token.end]))
    }

    pub(super) fn syntax_error(&mut self, message: &str) {
        let offset = self.token().start;
        self.report(offset, format!("Syntax error: {message}"));
    }

    /// Takes a token of this kind; one token too many before it is left out, a missing one is assumed.
    pub(super) fn expect(&mut self, kind: Kind) -> Read<Token> {
        if let Some(token) = self.eat(kind) {
            return Ok(token);
        }
        let (token, input) = (self.token(), self.quoted(self.token()));
        if self.peek_at(1) == kind && token.kind != Kind::Eof {
            self.syntax_error(&format!("extraneous input {input} expecting {}", kind.name()));
            self.advance();
            return Ok(self.advance());
        }
        let assumed = match kind {
            Kind::Colon => EXPRESSION.contains(&token.kind),
            Kind::RParen | Kind::RBracket => token.kind == Kind::Eof && self.open <= 1 || follows(token.kind),
            _ => false,
        };
        if assumed {
            self.syntax_error(&format!("missing {} at {input}", kind.name()));
            return Ok(token);
        }
        self.syntax_error(&format!("mismatched input {input} expecting {}", kind.name()));
        Err(Stop)
    }

    /// Checks that one of these kinds is next; one token too many is left out.
    pub(super) fn expect_one_of(&mut self, kinds: &[Kind]) -> Read<()> {
        if kinds.contains(&self.peek()) {
            return Ok(());
        }
        let input = self.quoted(self.token());
        let mut sorted = kinds.to_vec();
        sorted.sort();
        let names: Vec<_> = sorted.into_iter().map(Kind::name).collect();
        let set = format!("{{{}}}", names.join(", "));
        if kinds.contains(&self.peek_at(1)) && self.peek() != Kind::Eof {
            self.syntax_error(&format!("extraneous input {input} expecting {set}"));
            self.advance();
            return Ok(());
        }
        self.syntax_error(&format!("mismatched input {input} expecting {set}"));
        Err(Stop)
    }

    /// Checks that an expression begins here, or that one of further kinds is next.
    pub(super) fn expect_expression(&mut self, or: &[Kind]) -> Read<()> {
        let all: Vec<_> = EXPRESSION.iter().chain(or).copied().collect();
        self.expect_one_of(&all)
    }

    /// A minus is not followed by a number.
    pub(super) fn no_number(&mut self) -> Stop {
        let token = self.token();
        let word = match token.kind {
            Kind::Eof => "<EOF>".to_owned(),
            _ => self.text(token),
        };
        self.syntax_error(&format!("no viable alternative at input '-{word}'"));
        Stop
    }

    /// The name after a dot is none.
    pub(super) fn no_name(&mut self, dot: Token) -> Stop {
        let token = self.token();
        let word = self.text(token);
        if matches!(token.kind, Kind::True | Kind::False | Kind::Null) {
            self.syntax_error(&format!("mismatched input '{word}' expecting IDENTIFIER"));
        } else {
            let text = self.text(dot) + &word;
            self.syntax_error(&format!("no viable alternative at input '{text}'"));
        }
        Stop
    }
}
