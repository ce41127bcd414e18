//! Values: names, calls, brackets, lists, maps, objects and literals.

use super::lexer::{Kind, Token};
use super::unescape::unescape;
use super::{Parser, Part, Read};
use crate::ast::{Expr, ExprKind, FieldEntry, Literal, MapEntry};
use crate::escaping::is_reserved;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Read<Part> {
        let token = self.token();
        match token.kind {
            Kind::LParen => {
                self.advance();
                self.open += 1;
                let part = self.expression()?;
                self.expect(Kind::RParen)?;
                self.open -= 1;
                Ok(part)
            }
            Kind::LBracket => self.list(),
            Kind::LBrace => self.map(),
            Kind::Dot | Kind::Ident => self.named(),
            _ => Ok(Part {
                expr: self.literal()?,
                height: 0,
            }),
        }
    }

    /// A name, a call or an object.
    fn named(&mut self) -> Read<Part> {
        let first = self.token();
        let leading = self.eat(Kind::Dot);
        if self.peek() != Kind::Ident {
            return Err(self.no_name(first));
        }
        if let Some(count) = self.object_name() {
            return self.object(count, leading.is_some());
        }
        let token = self.advance();
        let word = self.text(token);
        let dot = if leading.is_some() { "." } else { "" };
        let reserved = is_reserved(&word);
        let message = format!("reserved identifier: {word}");
        if self.peek() == Kind::LParen {
            let open = self.advance();
            let (args, height) = self.arguments()?;
            let expr = if reserved {
                self.wrong(first.start, message)
            } else {
                self.global_call(open.start, &format!("{dot}{word}"), args)
            };
            return Ok(Part { expr, height });
        }
        let expr = if reserved {
            self.wrong(first.start, message)
        } else {
            self.node(token.start, ExprKind::Ident(format!("{dot}{word}")))
        };
        Ok(Part { expr, height: 0 })
    }

    /// Tokens of the name of an object's type, when one begins here.
    fn object_name(&self) -> Option<usize> {
        let mut count = 1;
        while self.peek_at(count) == Kind::Dot && self.peek_at(count + 1) == Kind::Ident {
            count += 2;
        }
        (self.peek_at(count) == Kind::LBrace).then_some(count)
    }

    fn object(&mut self, count: usize, leading: bool) -> Read<Part> {
        let mut name = if leading { "." } else { "" }.to_owned();
        for _ in 0..count {
            let token = self.advance();
            name += &self.text(token);
        }
        let open = self.advance();
        self.expect_one_of(&[
            Kind::RBrace,
            Kind::Comma,
            Kind::Question,
            Kind::Ident,
            Kind::EscIdent,
        ])?;
        let id = self.id(open.start);
        let (mut fields, mut height) = (Vec::new(), 0);
        self.open += 1;
        while matches!(self.peek(), Kind::Question | Kind::Ident | Kind::EscIdent) {
            let (field, own) = self.field()?;
            fields.push(field);
            height = height.max(own);
            if !self.separated(Kind::RBrace)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RBrace)?;
        self.open -= 1;
        let kind = ExprKind::Struct { name, fields };
        let expr = Expr { id, kind };
        Ok(Part { expr, height })
    }

    fn field(&mut self) -> Read<(FieldEntry, usize)> {
        let optional = self.eat(Kind::Question).is_some();
        self.expect_one_of(&[Kind::Ident, Kind::EscIdent])?;
        let token = self.advance();
        let name = self.name(token);
        let colon = self.expect(Kind::Colon)?;
        let id = self.id(colon.start);
        let value = self.expression()?;
        let field = FieldEntry {
            id,
            name,
            value: value.expr,
            optional,
        };
        Ok((field, value.height))
    }

    /// Reports whether a comma with something behind it was passed.
    fn separated(&mut self, close: Kind) -> Read<bool> {
        self.expect_one_of(&[close, Kind::Comma])?;
        if self.peek() != Kind::Comma || self.peek_at(1) == close || self.peek_at(1) == Kind::Comma {
            return Ok(false);
        }
        self.advance();
        if close != Kind::RBrace {
            self.expect_expression(&[Kind::Question])?;
        }
        Ok(true)
    }

    fn list(&mut self) -> Read<Part> {
        let open = self.advance();
        self.expect_expression(&[Kind::RBracket, Kind::Comma, Kind::Question])?;
        let id = self.id(open.start);
        let (mut elements, mut optional, mut height) = (Vec::new(), Vec::new(), 0);
        self.open += 1;
        while !matches!(self.peek(), Kind::RBracket | Kind::Comma) {
            if self.eat(Kind::Question).is_some() {
                optional.push(elements.len());
            }
            let element = self.expression()?;
            height = height.max(element.height);
            elements.push(element.expr);
            if !self.separated(Kind::RBracket)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RBracket)?;
        self.open -= 1;
        let kind = ExprKind::List { elements, optional };
        let expr = Expr { id, kind };
        Ok(Part { expr, height })
    }

    fn map(&mut self) -> Read<Part> {
        let open = self.advance();
        self.expect_expression(&[Kind::RBrace, Kind::Comma, Kind::Question])?;
        let id = self.id(open.start);
        let (mut entries, mut height) = (Vec::new(), 0);
        self.open += 1;
        while !matches!(self.peek(), Kind::RBrace | Kind::Comma) {
            let optional = self.eat(Kind::Question).is_some();
            let key = self.expression()?;
            let colon = self.expect(Kind::Colon)?;
            self.id(colon.start);
            let value = self.expression()?;
            height = height.max(key.height).max(value.height);
            entries.push(MapEntry {
                key: key.expr,
                value: value.expr,
                optional,
            });
            if !self.separated(Kind::RBrace)? {
                break;
            }
        }
        self.eat(Kind::Comma);
        self.expect(Kind::RBrace)?;
        self.open -= 1;
        let kind = ExprKind::Map(entries);
        let expr = Expr { id, kind };
        Ok(Part { expr, height })
    }

    fn literal(&mut self) -> Read<Expr> {
        let first = self.token();
        let sign = self.eat(Kind::Minus).is_some();
        // A sign stands before numbers alone; `!` is here only behind a minus.
        let number = matches!(self.peek(), Kind::Int | Kind::Float);
        if !number && (sign || self.peek() == Kind::Exclam) {
            return Err(self.no_number());
        }
        let token = self.advance();
        let text = self.text(token);
        Ok(match self.value(token, &text, sign) {
            Ok(literal) => self.node(first.start, ExprKind::Literal(literal)),
            Err(problem) => self.wrong(first.start, problem.to_owned()),
        })
    }

    fn value(&mut self, token: Token, text: &str, negative: bool) -> Result<Literal, &'static str> {
        Ok(match token.kind {
            Kind::True => Literal::Bool(true),
            Kind::False => Literal::Bool(false),
            Kind::Null => Literal::Null,
            Kind::Int => Literal::Int(whole(text, negative).ok_or("invalid int literal")?),
            Kind::Uint => {
                let digits = &text[..text.len() - 1];
                let value = match digits.strip_prefix("0x") {
                    Some(hex) => u64::from_str_radix(hex, 16),
                    None => digits.parse(),
                };
                Literal::Uint(value.map_err(|_| "invalid uint literal")?)
            }
            Kind::Float => {
                let value: f64 = text.parse().map_err(|_| "invalid double literal")?;
                if value.is_infinite() {
                    return Err("invalid double literal");
                }
                Literal::Double(if negative { -value } else { value })
            }
            Kind::Bytes => Literal::Bytes(unescape(&text[1..], true)?),
            Kind::String => {
                let bytes = unescape(text, false)?;
                Literal::String(String::from_utf8(bytes).map_err(|_| "unable to unescape string")?)
            }
            _ => return Err("no literal"),
        })
    }
}

fn whole(text: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(hex) => (hex, 16),
        None => (text, 10),
    };
    let value = i128::from(u64::from_str_radix(digits, radix).ok()?);
    i64::try_from(if negative { -value } else { value }).ok()
}
