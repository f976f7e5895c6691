//! The table of an evaluation as text and as CSV.

use std::fmt::Write as _;

use super::Evaluation;

/// Columns of the table as text: heading, figure.
const COLUMNS: [(&str, &str); 16] = [
    ("EM", "em"),
    ("pass@k", "pass_at_k"),
    ("EM/obj", "objectives_em"),
    ("F1", "f1"),
    ("CEM", "cem"),
    ("facts kept", "notes_recall"),
    ("notes", "notes_tokens"),
    ("PT", "peak_tokens"),
    ("TT", "total_tokens"),
    ("dependency", "dependency"),
    ("turns", "turns"),
    ("searches", "searches"),
    ("pages", "accesses"),
    ("broken", "format_errors"),
    ("failed", "tool_failures"),
    ("answered", "answered"),
];

/// A table in Markdown, a line for each context and number of objectives.
#[must_use]
pub fn table_text(lines: &[Evaluation]) -> String {
    let mut text = String::from("| context | objectives | n x k |");
    for (heading, _) in COLUMNS {
        let _ = write!(text, " {heading} |");
    }
    text.push_str("\n| --- | ---: | ---: |");
    text.push_str(&" ---: |".repeat(COLUMNS.len()));
    for line in lines {
        let _ = write!(
            text,
            "\n| {} | {} | {} x {} |",
            line.context.name(),
            line.objectives,
            line.n,
            line.samples
        );
        let figures = line.figures();
        for (_, name) in COLUMNS {
            let value = figures.iter().find(|(known, _)| *known == name);
            let Some(value) = value.and_then(|(_, value)| *value) else {
                text.push_str(" - |");
                continue;
            };
            // Shares have digits behind the point, counts of tokens do not need any.
            let digits = if value.abs() < 10.0 { 3 } else { 0 };
            let _ = write!(text, " {value:.digits$}");
            let bounds = match name {
                "em" => Some((line.em_low, line.em_high)),
                "f1" => Some((line.f1_low, line.f1_high)),
                _ => None,
            };
            if let Some((low, high)) = bounds {
                let _ = write!(text, " ({low:.2} to {high:.2})");
            }
            text.push_str(" |");
        }
    }
    text.push('\n');
    text
}

/// The table as CSV with every figure; what is not measured is empty.
#[must_use]
pub fn csv(lines: &[Evaluation]) -> String {
    let mut text = String::from("step,context,objectives,n,samples");
    for (name, _) in Evaluation::default().figures() {
        let _ = write!(text, ",{name}");
    }
    for (name, _) in Evaluation::default().endings() {
        let _ = write!(text, ",{name}");
    }
    text.push('\n');
    for line in lines {
        let _ = write!(
            text,
            "{},{},{},{},{}",
            line.step,
            line.context.name(),
            line.objectives,
            line.n,
            line.samples
        );
        for (_, value) in line.figures() {
            let value = value.map_or_else(String::new, |value| value.to_string());
            let _ = write!(text, ",{value}");
        }
        for (_, share) in line.endings() {
            let _ = write!(text, ",{share}");
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_has_its_place_in_table_and_csv() {
        let line = Evaluation {
            objectives: 2,
            n: 5,
            samples: 3,
            em: 0.4,
            em_low: 0.2,
            em_high: 0.6,
            total_tokens: 1234.4,
            ..Evaluation::default()
        };
        let table = table_text(&[line]);
        assert!(
            table.contains("| full | 2 | 5 x 3 | 0.400 (0.20 to 0.60) |"),
            "{table}"
        );
        assert!(table.contains(" 1234 |"), "{table}");
        let widths: Vec<usize> = table
            .lines()
            .map(|line| line.matches('|').count())
            .collect();
        assert_eq!(widths, [widths[0]; 3]);
        for (_, name) in COLUMNS {
            assert!(
                line.figures().iter().any(|(known, _)| *known == name),
                "{name}"
            );
        }
        let csv = csv(&[line]);
        let counts: Vec<usize> = csv.lines().map(|line| line.matches(',').count()).collect();
        assert_eq!(counts[0], counts[1]);
        assert!(csv.contains("0,full,2,5,3,0.4,0.2,0.6,"), "{csv}");
        assert!(csv.contains(",stop/turn_limit,") && csv.contains(",format/one_action,"));
        // Notes that were not measured are no notes of length 0.
        assert!(table.contains(" - | - |"), "{table}");
        assert!(csv.contains(",0,,,0,1234.4,"), "{csv}");
    }
}
