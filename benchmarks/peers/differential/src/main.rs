//! The descendants of every node of a tree, counted by differential-dataflow on one thread.
//!
//!     ddpeer load TREE OUT BATCH                 BATCH records an epoch; 0: all in one
//!     ddpeer live TREE OUT BATCH CHANGES SUMS    the tree in one epoch, then the changes
//!
//! The loop carries bare ancestors: the multiplicity of a node is the number of its descendants,
//! as the weight is in eddy. Timed: inserting, stepping until the result is out, reading its delta.

use std::{cell::RefCell, collections::HashMap, fs, rc::Rc, time::Instant};

use ddpeer::{cpu_seconds, percentile_ms};
use differential_dataflow::{input::Input, operators::*, VecCollection};
use timely::dataflow::operators::probe::Handle;

type Edge = (u32, u32);
type Update = (Edge, isize);
const SUM_EVERY: usize = 100;

/// What has come out so far: the counts, and Σ count × (node + 1).
#[derive(Default)]
struct Seen {
    counts: HashMap<u32, i64>,
    total: i64,
}

impl Seen {
    fn add(&mut self, node: u32, count: i64) {
        self.total += count * (node as i64 + 1);
        let sum = self.counts.entry(node).or_insert(0);
        *sum += count;
        if *sum == 0 {
            self.counts.remove(&node);
        }
    }

    fn text(&self) -> String {
        self.counts
            .iter()
            .map(|(node, count)| format!("{node} {count}\n"))
            .collect()
    }
}

fn read_edges(path: &str) -> Vec<Edge> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let (node, parent) = line.split_once(' ').unwrap();
            (node.parse().unwrap(), parent.parse().unwrap())
        })
        .collect()
}

/// Each change as one or two updates of the edges.
fn read_changes(path: &str) -> Vec<Vec<Update>> {
    let text = fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |i: usize| words[i].parse::<u32>().unwrap();
            let edge = (number(1), number(2));
            match words[0] {
                "+" => vec![(edge, 1)],
                "-" => vec![(edge, -1)],
                _ => vec![(edge, -1), ((edge.0, number(3)), 1)],
            }
        })
        .collect()
}

/// A size from /proc, in bytes.
fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find(|line| line.starts_with(field));
    line.map_or(0, |line| {
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    })
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let live = arguments[1] == "live";
    let batch: usize = arguments[4].parse().unwrap();
    timely::execute_directly(move |worker| {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let (sink, mut probe) = (seen.clone(), Handle::new());
        let mut edges = worker.dataflow::<usize, _, _>(|scope| {
            let (input, edges) = scope.new_collection::<Edge, isize>();
            let parents = edges.clone().map(|(_, parent)| parent);
            let counts: VecCollection<'_, usize, (u32, isize), isize> = parents
                .clone()
                .iterate(|inner, x| {
                    let (edges, parents) = (edges.enter(inner), parents.enter(inner));
                    x.map(|node| (node, ()))
                        .join_map(edges, |_, _, parent| *parent)
                        .concat(parents)
                        .consolidate()
                })
                .count();
            counts
                .consolidate()
                .inspect(move |((node, count), _, weight)| sink.borrow_mut().add(*node, (count * weight) as i64))
                .probe_with(&mut probe);
            input
        });
        let tree: Vec<Update> = read_edges(&arguments[2]).into_iter().map(|edge| (edge, 1)).collect();
        let size = if live || batch == 0 { tree.len() } else { batch };
        let mut epochs: Vec<Vec<Update>> = tree.chunks(size).map(|part| part.to_vec()).collect();
        drop(tree);

        let mut epoch = 0;
        let mut run = |epochs: &[Vec<Update>]| {
            let (mut seconds, mut totals) = (Vec::new(), Vec::new());
            for updates in epochs {
                let begun = Instant::now();
                for (edge, weight) in updates {
                    edges.update(*edge, *weight);
                }
                epoch += 1;
                edges.advance_to(epoch);
                edges.flush();
                worker.step_while(|| probe.less_than(edges.time()));
                seconds.push(begun.elapsed().as_secs_f64());
                totals.push(seen.borrow().total);
            }
            (seconds, totals)
        };
        if live {
            run(&epochs);
            epochs = read_changes(&arguments[5])
                .chunks(batch)
                .map(|part| part.concat())
                .collect();
        }
        let before = status("VmRSS");
        let _ = fs::write("/proc/self/clear_refs", "5");
        let cpu = cpu_seconds();
        let (mut seconds, totals) = run(&epochs);
        let cpu = cpu_seconds() - cpu;
        let peak = status("VmHWM");
        let total: f64 = seconds.iter().sum();
        seconds.sort_by(f64::total_cmp);
        println!(
            "{{\"seconds\": {total:.6}, \"cpu_seconds\": {cpu:.6}, \"p50_ms\": {:.5}, \"p99_ms\": {:.5}, \"before_bytes\": {before}, \"peak_bytes\": {peak}}}",
            percentile_ms(&seconds, 0.5),
            percentile_ms(&seconds, 0.99),
        );
        fs::write(&arguments[3], seen.borrow().text()).unwrap();
        if live {
            let every = SUM_EVERY / batch;
            let sums = totals.iter().skip(every - 1).step_by(every);
            fs::write(
                &arguments[6],
                sums.map(|total| format!("{total}\n")).collect::<String>(),
            )
            .unwrap();
        }
    });
}
