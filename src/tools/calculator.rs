//! A calculator, as an example of a tool: this file, and one line in [`super::of`].
//!
//! It answers `<search>calculate: 12 * (3 + 4)</search>`: numbers, `+ - * / % ^`, brackets.

use super::{Tool, ToolCall, ToolError, ToolFuture};
use crate::trajectory::Action;

/// What a query begins with that is a sum.
const PREFIX: &str = "calculate:";
/// Deepest nesting of brackets, signs and powers.
const DEEPEST: u32 = 100;

/// Works sums out.
pub struct Calculator;

impl Tool for Calculator {
    fn name(&self) -> &'static str {
        "calculator"
    }

    fn serves(&self, action: &Action) -> bool {
        matches!(action, Action::Search(query) if query.trim_start().starts_with(PREFIX))
    }

    fn call(&self, call: ToolCall) -> ToolFuture {
        Box::pin(async move {
            let sum = match &call.action {
                Action::Search(query) => query.trim().strip_prefix(PREFIX),
                _ => None,
            };
            let Some(sum) = sum else {
                return Err(ToolError::Unknown(call.action));
            };
            // A wrong sum is the policy's mistake, which it should read; the tool has not failed.
            Ok(value_of(sum).map_or_else(
                |problem| format!("error: {problem}"),
                |value| value.to_string(),
            ))
        })
    }
}

/// The value of a sum, or what is wrong with it.
fn value_of(sum: &str) -> Result<f64, String> {
    let mut reader = Reader {
        rest: sum.trim(),
        depth: 0,
    };
    let value = reader.sum()?;
    if !reader.rest.is_empty() {
        return Err(format!("{:?} is not understood", reader.rest));
    }
    if value.is_finite() {
        Ok(value)
    } else {
        Err("the result is no finite number".to_owned())
    }
}

struct Reader<'a> {
    rest: &'a str,
    depth: u32,
}

impl Reader<'_> {
    fn takes(&mut self, sign: char) -> bool {
        let Some(rest) = self.rest.strip_prefix(sign) else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }

    /// `a + b - c`
    fn sum(&mut self) -> Result<f64, String> {
        let mut value = self.product()?;
        loop {
            if self.takes('+') {
                value += self.product()?;
            } else if self.takes('-') {
                value -= self.product()?;
            } else {
                return Ok(value);
            }
        }
    }

    /// `a * b / c % d`
    fn product(&mut self) -> Result<f64, String> {
        let mut value = self.power()?;
        loop {
            if self.takes('*') {
                value *= self.power()?;
            } else if self.takes('/') {
                value /= self.power()?;
            } else if self.takes('%') {
                value %= self.power()?;
            } else {
                return Ok(value);
            }
        }
    }

    /// `-a ^ b`: from the right, and stronger than the sign.
    fn power(&mut self) -> Result<f64, String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("it is nested deeper than {DEEPEST}"));
        }
        let value = if self.takes('-') {
            -self.power()?
        } else {
            let base = self.number()?;
            if self.takes('^') {
                base.powf(self.power()?)
            } else {
                base
            }
        };
        self.depth -= 1;
        Ok(value)
    }

    fn number(&mut self) -> Result<f64, String> {
        if self.takes('(') {
            let value = self.sum()?;
            return if self.takes(')') {
                Ok(value)
            } else {
                Err("a bracket is not closed".to_owned())
            };
        }
        let end = self
            .rest
            .find(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .unwrap_or(self.rest.len());
        let (digits, rest) = self.rest.split_at(end);
        let value = digits
            .parse()
            .map_err(|_| format!("{:?} begins with no number", self.rest))?;
        self.rest = rest.trim_start();
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_worked_out_and_wrong_ones_say_what_is_wrong() {
        for (sum, value) in [
            ("12 * (3 + 4)", 84.0),
            ("2 - 3 - 4", -5.0),
            ("-2 ^ 2", -4.0),
            ("2 ^ 3 ^ 2", 512.0),
            ("7 % 4 / 2", 1.5),
            (" .5*4 ", 2.0),
        ] {
            assert_eq!(value_of(sum), Ok(value), "{sum}");
        }
        let deep = format!("{}1{}", "(".repeat(500), ")".repeat(500));
        for (sum, said) in [
            ("", "no number"),
            ("1 +", "no number"),
            ("(1", "not closed"),
            ("1 2", "not understood"),
            ("1 / 0", "no finite number"),
            (deep.as_str(), "nested deeper"),
        ] {
            let problem = value_of(sum).unwrap_err();
            assert!(problem.contains(said), "{sum}: {problem}");
        }
    }

    #[test]
    fn only_queries_with_its_word_are_its_own() {
        let search = |query: &str| Action::Search(query.to_owned());
        assert!(Calculator.serves(&search(" calculate: 1+1")));
        assert!(!Calculator.serves(&search("who calculates")));
        assert!(!Calculator.serves(&Action::Access("calculate: 1".to_owned())));
    }
}
