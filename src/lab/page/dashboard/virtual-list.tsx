/** List of any number of rows, of which only those near the visible part are in the page. */
import type { ComponentChildren } from "preact";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

/** Rows beyond the visible ones that are rendered on each side, so that a short scroll shows no gap. */
const OVERSCAN = 8;

/** Properties of {@link VirtualList}. */
export interface VirtualListProps {
  readonly label: string;
  readonly columns: readonly { readonly name: string; readonly isNumeric?: boolean }[];
  /** Number of rows; only those near the visible part are rendered. */
  readonly total: number;
  /** Height of a row in pixels. */
  readonly rowHeight: number;
  /** Index of the active row; -1 for none. */
  readonly active: number;
  /** Row to scroll to while no row is active, such as the first one of a step; -1 for none. */
  readonly anchor: number;
  /** Called when a key moves the active row, or a pointer or Enter opens it. */
  readonly onActivate: (index: number, how: "move" | "open") => void;
  /** Called with the first and last rendered row. */
  readonly onRange: (first: number, last: number) => void;
  /** Returns the cells of a row, one per column. */
  readonly row: (index: number) => readonly ComponentChildren[];
}

/**
 * Table of any number of rows in a fixed height. Arrow keys, Page Up, Page Down, Home and End move the active row, Enter opens it; screen
 * readers get the row's number and the number of rows.
 */
export function VirtualList({ label, columns, total, rowHeight, active, anchor, onActivate, onRange, row }: VirtualListProps) {
  const grid = useRef<HTMLDivElement>(null);
  /** Scroll position and height of the list in pixels. */
  const [scrollTop, setScrollTop] = useState(0);
  const [height, setHeight] = useState(400);
  const firstRow = Math.max(0, Math.min(Math.floor(scrollTop / rowHeight) - OVERSCAN, total - 1));
  const lastRow = Math.min(total - 1, Math.ceil((scrollTop + height) / rowHeight) + OVERSCAN);

  useLayoutEffect(() => {
    const element = grid.current;
    if (element === null) return undefined;
    const measure = new ResizeObserver(() => setHeight(element.clientHeight));
    measure.observe(element);
    return () => measure.disconnect();
  }, []);
  useLayoutEffect(() => onRange(firstRow, lastRow), [firstRow, lastRow, total, onRange]);
  useLayoutEffect(() => {
    const element = grid.current;
    if (element === null) return;
    if (active < 0) {
      if (anchor >= 0) element.scrollTop = anchor * rowHeight;
      return;
    }
    // The head of the table covers one row at the top.
    const activeTop = active * rowHeight;
    const visibleHeight = element.clientHeight - rowHeight;
    if (activeTop < element.scrollTop) element.scrollTop = activeTop;
    else if (activeTop + rowHeight > element.scrollTop + visibleHeight) element.scrollTop = activeTop + rowHeight - visibleHeight;
  }, [active, anchor, rowHeight]);

  const onKeyDown = (event: KeyboardEvent) => {
    if (event.ctrlKey || event.metaKey || event.altKey || total === 0) return;
    const pageRows = Math.max(1, Math.floor(height / rowHeight) - 2);
    const moves: Readonly<Record<string, number>> = {
      ArrowDown: active + 1,
      ArrowUp: active - 1,
      PageDown: active + pageRows,
      PageUp: active - pageRows,
      Home: 0,
      End: total - 1,
    };
    const target = moves[event.key];
    if (target !== undefined) onActivate(Math.max(0, Math.min(total - 1, target)), "move");
    else if (event.key === "Enter" && active >= 0) onActivate(active, "open");
    else return;
    event.preventDefault();
  };
  const rows = Array.from({ length: Math.max(0, lastRow - firstRow + 1) }, (_, offset) => firstRow + offset);
  return (
    <div
      ref={grid}
      class="virtual"
      role="grid"
      aria-label={label}
      aria-rowcount={total + 1}
      aria-colcount={columns.length}
      aria-activedescendant={active >= firstRow && active <= lastRow ? `row-${active}` : undefined}
      tabIndex={0}
      style={{ "--row-height": `${rowHeight}px` }}
      onScroll={({ currentTarget }) => setScrollTop(currentTarget.scrollTop)}
      onKeyDown={onKeyDown}
    >
      <div role="rowgroup" class="virtual-head">
        <div role="row" aria-rowindex={1} class="virtual-row">
          {columns.map(({ name, isNumeric }) => (
            <span key={name} role="columnheader" class={isNumeric ? "num" : undefined}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div role="rowgroup" class="virtual-body" style={{ height: `${total * rowHeight}px` }}>
        {rows.map((index) => (
          <div
            key={index}
            id={`row-${index}`}
            role="row"
            class="virtual-row"
            aria-rowindex={index + 2}
            aria-selected={index === active}
            style={{ transform: `translateY(${index * rowHeight}px)` }}
            onClick={() => onActivate(index, "open")}
          >
            {row(index).map((cell, at) => (
              <span key={at} role="gridcell" class={columns[at]?.isNumeric ? "num" : undefined}>
                {cell}
              </span>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
