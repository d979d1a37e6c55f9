//! Samples, tables, and how they are printed.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::machine::About;

/// What the rounds of one case gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds what a round gave.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// The middle value; of an even number the mean of the two in the middle. Nothing when there is none.
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        if sorted.len().is_multiple_of(2) {
            let lower = sorted.get(sorted.len() / 2 - 1)?;
            return Some((lower + upper) / 2.0);
        }
        Some(upper)
    }

    /// The smallest and the largest.
    pub fn spread(&self) -> Option<(f64, f64)> {
        let least = self.0.iter().copied().min_by(f64::total_cmp)?;
        let most = self.0.iter().copied().max_by(f64::total_cmp)?;
        Some((least, most))
    }
}

/// Samples by figure, of one case.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Case {
    /// By the name of the figure.
    pub figures: BTreeMap<&'static str, Samples>,
    /// What went wrong, a line for each round that failed.
    pub failures: Vec<String>,
}

impl Case {
    /// Adds what a round gave for a figure.
    pub fn push(&mut self, figure: &'static str, value: f64) {
        self.figures.entry(figure).or_default().push(value);
    }

    /// The median of a figure.
    pub fn median(&self, figure: &str) -> Option<f64> {
        self.figures.get(figure)?.median()
    }

    /// The median of a figure as text.
    pub fn show(&self, figure: &str, decimals: usize) -> String {
        number(self.median(figure), decimals)
    }

    /// Smallest and largest of a figure as text.
    pub fn show_spread(&self, figure: &str, decimals: usize) -> String {
        let spread = self.figures.get(figure).and_then(Samples::spread);
        spread.map_or(NONE.into(), |(least, most)| {
            format!("{least:.decimals$}–{most:.decimals$}")
        })
    }
}

/// What stands where there is no figure.
pub const NONE: &str = "–";

/// A figure as text.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or(NONE.into(), |value| format!("{value:.decimals$}"))
}

/// One figure over another, where both are there.
pub fn ratio(value: Option<f64>, of: Option<f64>) -> Option<f64> {
    Some(value? / of.filter(|&of| of > 0.0)?)
}

/// A table.
#[derive(Debug, Clone, Serialize)]
pub struct Table {
    /// What it shows.
    pub title: String,
    /// Heads of the columns.
    pub head: Vec<&'static str>,
    /// Rows, a cell for each column.
    pub rows: Vec<Vec<String>>,
}

impl Table {
    /// A table without rows.
    pub fn new(title: impl Into<String>, head: &[&'static str]) -> Self {
        Self {
            title: title.into(),
            head: head.to_vec(),
            rows: Vec::new(),
        }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    fn markdown(&self) -> String {
        let line = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
        let mut text = format!("{}\n\n", self.title);
        text += &line(self.head.clone());
        let rules = (0..self.head.len()).map(|column| if column == 0 { "---" } else { "--:" });
        text += &line(rules.collect());
        for row in &self.rows {
            text += &line(row.iter().map(String::as_str).collect());
        }
        text
    }
}

/// Everything that a subcommand has found.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// What was measured, where and how.
    pub about: About,
    /// Settings and remarks, a line each.
    pub notes: Vec<String>,
    /// The tables.
    pub tables: Vec<Table>,
    /// Every sample, by case.
    pub cases: BTreeMap<String, Case>,
}

impl Report {
    /// Prints it, as Markdown or as JSON.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn print(&self, json: bool) -> Result<(), serde_json::Error> {
        if json {
            println!("{}", serde_json::to_string_pretty(self)?);
            return Ok(());
        }
        println!("{}\n", self.about);
        for note in &self.notes {
            println!("- {note}");
        }
        for table in &self.tables {
            println!("\n{}", table.markdown());
        }
        for (name, case) in &self.cases {
            for failure in &case.failures {
                println!("- failed: {name}: {failure}");
            }
        }
        Ok(())
    }

    /// Whether a round of any case has failed.
    pub fn has_failures(&self) -> bool {
        self.cases.values().any(|case| !case.failures.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(values: &[f64]) -> Samples {
        Samples(values.to_vec())
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(samples(&[]).median(), None);
        assert_eq!(samples(&[3.0, 1.0, 8.0]).median(), Some(3.0));
        assert_eq!(samples(&[4.0, 1.0, 8.0, 2.0]).median(), Some(3.0));
        assert_eq!(samples(&[4.0, 1.0, 8.0]).spread(), Some((1.0, 8.0)));
    }

    #[test]
    fn a_table_has_a_cell_for_each_column() {
        let mut table = Table::new("T", &["a", "b"]);
        table.row(["x".into(), number(ratio(Some(1.0), Some(4.0)), 2)]);
        table.row(["y".into(), number(ratio(Some(1.0), Some(0.0)), 2)]);
        assert_eq!(
            table.markdown(),
            "T\n\n| a | b |\n| --- | --: |\n| x | 0.25 |\n| y | – |\n"
        );
    }
}
