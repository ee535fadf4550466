//! What the peers share: a graph with its changes, how they are followed, and what is told of it.

use std::fs;

pub type Pair = (u32, u32);
pub type Update = (Pair, isize);

/// A graph of lines "r node", "e id from to", "+ id from to", "- id from to".
#[derive(Default)]
pub struct Story {
    pub roots: Vec<u32>,
    pub graph: Vec<Update>,
    pub changes: Vec<Update>,
}

impl Story {
    pub fn read(path: &str) -> Story {
        let mut story = Story::default();
        for line in fs::read_to_string(path).unwrap().lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |i: usize| words[i].parse::<u32>().unwrap();
            match words[0] {
                "r" => story.roots.push(number(1)),
                "e" => story.graph.push(((number(2), number(3)), 1)),
                "+" => story.changes.push(((number(2), number(3)), 1)),
                _ => story.changes.push(((number(2), number(3)), -1)),
            }
        }
        story
    }

    /// The graph in one epoch, then its changes, `batch` an epoch; `run` returns its seconds. What they took is
    /// printed, and the lines of `total` after each epoch are returned.
    pub fn follow(
        &self,
        batch: usize,
        mut run: impl FnMut(&[Update]) -> f64,
        total: impl Fn() -> i64,
    ) -> String {
        let load = run(&self.graph);
        let (mut seconds, mut sums) = (Vec::new(), String::new());
        let cpu = cpu_seconds();
        for part in self.changes.chunks(batch) {
            seconds.push(run(part));
            sums += &format!("{}\n", total());
        }
        let cpu = cpu_seconds() - cpu;
        let all: f64 = seconds.iter().sum();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{{\"seconds\": {all:.6}, \"cpu_seconds\": {cpu:.6}, \"load_seconds\": {load:.6}, \"p50_ms\": {:.5}, \"p99_ms\": {:.5}}}",
            percentile_ms(&seconds, 0.5),
            percentile_ms(&seconds, 0.99),
        );
        sums
    }
}

/// The time that this thread, which does all the work, has had a core, in seconds.
pub fn cpu_seconds() -> f64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|ns| ns.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1e9
}

pub fn percentile_ms(sorted: &[f64], p: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * p) as usize] * 1e3
}
