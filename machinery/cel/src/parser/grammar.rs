//! Operators, from the weakest to the strongest, and what follows a value.

use super::lexer::{Kind, Token};
use super::{MAX_DEPTH, Parser, Part, Read};
use crate::ast::{Expr, ExprKind, Literal};

impl Parser<'_> {
    pub(super) fn whole(&mut self) -> Read<Expr> {
        let part = self.expression()?;
        self.expect(Kind::Eof)?;
        Ok(part.expr)
    }

    pub(super) fn expression(&mut self) -> Read<Part> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            let message = format!("expression recursion limit exceeded: {MAX_DEPTH}");
            return Err(self.limit(message));
        }
        let condition = self.logic()?;
        let Some(question) = self.eat(Kind::Question) else {
            self.depth -= 1;
            return Ok(condition);
        };
        self.open += 1;
        let truthy = self.logic()?;
        self.expect(Kind::Colon)?;
        self.open -= 1;
        let falsy = self.expression()?;
        self.depth -= 1;
        let height = condition.height.max(truthy.height).max(falsy.height);
        let args = vec![condition.expr, truthy.expr, falsy.expr];
        let expr = self.global_call(question.start, "_?_:_", args);
        self.above(height, expr)
    }

    /// Chains of `&&`, in chains of `||`; both become balanced trees.
    fn logic(&mut self) -> Read<Part> {
        let (mut alternatives, mut height) = (Chain::default(), 0);
        let mut terms = Chain::default();
        loop {
            let part = self.binary(1)?;
            height = height.max(part.height);
            terms.terms.push(part.expr);
            if let Some(operator) = self.eat(Kind::And) {
                terms.offsets.push(operator.start);
                continue;
            }
            let term = self.chained("_&&_", std::mem::take(&mut terms));
            alternatives.terms.push(term);
            match self.eat(Kind::Or) {
                Some(operator) => alternatives.offsets.push(operator.start),
                None => break,
            }
        }
        let expr = self.chained("_||_", alternatives);
        Ok(Part { expr, height })
    }

    fn chained(&mut self, function: &str, chain: Chain) -> Expr {
        self.balanced(function, &chain.offsets, &mut chain.terms.into_iter())
    }

    /// The tree over the operators at these offsets, which takes one term more than there are.
    fn balanced(&mut self, function: &str, offsets: &[usize], terms: &mut std::vec::IntoIter<Expr>) -> Expr {
        let middle = offsets.len() / 2;
        let Some(offset) = offsets.get(middle) else {
            return terms.next().expect("one term more than operators");
        };
        let left = self.balanced(function, &offsets[..middle], terms);
        let right = self.balanced(function, &offsets[middle + 1..], terms);
        self.global_call(*offset, function, vec![left, right])
    }

    /// Operators of a level and above it, each from the left.
    fn binary(&mut self, level: usize) -> Read<Part> {
        let mut left = self.unary()?;
        while let Some((function, own)) = operator(self.peek()).filter(|found| found.1 >= level) {
            let token = self.advance();
            let right = self.binary(own + 1)?;
            left = self.joined(left, token, function, right)?;
        }
        Ok(left)
    }

    fn joined(&mut self, left: Part, operator: Token, function: &str, right: Part) -> Read<Part> {
        let height = left.height.max(right.height);
        let expr = self.global_call(operator.start, function, vec![left.expr, right.expr]);
        self.above(height, expr)
    }

    fn unary(&mut self) -> Read<Part> {
        self.expect_expression(&[])?;
        let number = matches!(self.peek_at(1), Kind::Int | Kind::Float);
        match self.peek() {
            Kind::Exclam => self.prefixed(),
            Kind::Minus if !number => self.prefixed(),
            _ => self.member(),
        }
    }

    /// A value after `!` or `-`, of which two mean nothing.
    fn prefixed(&mut self) -> Read<Part> {
        let first = self.advance();
        let mut count = 1;
        while self.eat(first.kind).is_some() {
            count += 1;
        }
        self.expect_expression(&[])?;
        let operand = self.member()?;
        if count % 2 == 0 {
            return Ok(operand);
        }
        let function = if first.kind == Kind::Exclam { "!_" } else { "-_" };
        let expr = self.global_call(first.start, function, vec![operand.expr]);
        Ok(Part {
            expr,
            height: operand.height,
        })
    }

    /// A value with selects, calls and indices.
    fn member(&mut self) -> Read<Part> {
        let mut part = self.primary()?;
        loop {
            part = match self.peek() {
                Kind::Dot => self.dot(part)?,
                Kind::LBracket => self.index(part)?,
                _ => return Ok(part),
            };
        }
    }

    fn dot(&mut self, operand: Part) -> Read<Part> {
        let dot = self.advance();
        if self.eat(Kind::Question).is_some() {
            self.expect_one_of(&[Kind::Ident, Kind::EscIdent])?;
            let name = self.advance();
            let literal = Literal::String(self.name(name));
            let field = self.node(name.start, ExprKind::Literal(literal));
            let expr = self.global_call(dot.start, "_?._", vec![operand.expr, field]);
            return self.above(operand.height, expr);
        }
        if !matches!(self.peek(), Kind::Ident | Kind::EscIdent) {
            return Err(self.no_name(dot));
        }
        let token = self.advance();
        if token.kind == Kind::Ident && self.peek() == Kind::LParen {
            let open = self.advance();
            let (args, height) = self.arguments()?;
            let function = self.text(token);
            let expr = self.call(open.start, &function, Some(operand.expr), args);
            return self.above(height.max(operand.height), expr);
        }
        let field = self.name(token);
        let select = ExprKind::Select {
            operand: Box::new(operand.expr),
            field,
            test: false,
        };
        let expr = self.node(dot.start, select);
        self.above(operand.height, expr)
    }

    /// A name, without the quotes of an escaped one.
    pub(super) fn name(&self, token: Token) -> String {
        let text = self.text(token);
        match token.kind {
            Kind::EscIdent => text[1..text.len() - 1].to_owned(),
            _ => text,
        }
    }

    fn index(&mut self, operand: Part) -> Read<Part> {
        let open = self.advance();
        self.expect_expression(&[Kind::Question])?;
        let function = if self.eat(Kind::Question).is_some() {
            "_[?_]"
        } else {
            "_[_]"
        };
        self.open += 1;
        let index = self.expression()?;
        self.expect(Kind::RBracket)?;
        self.open -= 1;
        let height = operand.height.max(index.height);
        let expr = self.global_call(open.start, function, vec![operand.expr, index.expr]);
        self.above(height, expr)
    }

    /// Arguments up to the closing bracket, with their greatest height.
    pub(super) fn arguments(&mut self) -> Read<(Vec<Expr>, usize)> {
        let (mut args, mut height) = (Vec::new(), 0);
        self.expect_expression(&[Kind::RParen])?;
        self.open += 1;
        if self.peek() != Kind::RParen {
            loop {
                let arg = self.expression()?;
                height = height.max(arg.height);
                args.push(arg.expr);
                if self.eat(Kind::Comma).is_none() {
                    break;
                }
            }
        }
        self.expect(Kind::RParen)?;
        self.open -= 1;
        Ok((args, height))
    }
}

/// Terms, and the places of the operators between them.
#[derive(Default)]
struct Chain {
    terms: Vec<Expr>,
    offsets: Vec<usize>,
}

/// Function and level of an operator.
fn operator(kind: Kind) -> Option<(&'static str, usize)> {
    Some(match kind {
        Kind::Less => ("_<_", 1),
        Kind::LessEquals => ("_<=_", 1),
        Kind::GreaterEquals => ("_>=_", 1),
        Kind::Greater => ("_>_", 1),
        Kind::Equals => ("_==_", 1),
        Kind::NotEquals => ("_!=_", 1),
        Kind::In => ("@in", 1),
        Kind::Plus => ("_+_", 2),
        Kind::Minus => ("_-_", 2),
        Kind::Star => ("_*_", 3),
        Kind::Slash => ("_/_", 3),
        Kind::Percent => ("_%_", 3),
        _ => return None,
    })
}
