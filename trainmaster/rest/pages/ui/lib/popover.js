// Something that opens below its button, and closes with Escape, with a click elsewhere, or when the address changes.
import { useEffect, useLayoutEffect, useRef, useState } from "../html.js";
import { route } from "./router.js";

/** The element that holds both the button and what opens gets `box`. */
export function usePopover() {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const place = route.value.path.join("/");
  useEffect(() => setOpen(false), [place]);
  // Before anybody can see that it is open, so that no key is missed.
  useLayoutEffect(() => {
    if (!isOpen) return undefined;
    /** @param {Event} event */
    const leave = (event) => {
      if (event instanceof KeyboardEvent) {
        if (event.key !== "Escape") return;
        box.current?.querySelector("button")?.focus();
      } else if (box.current?.contains(/** @type {Node} */ (event.target))) return;
      setOpen(false);
    };
    document.addEventListener("pointerdown", leave);
    document.addEventListener("keydown", leave);
    return () => {
      document.removeEventListener("pointerdown", leave);
      document.removeEventListener("keydown", leave);
    };
  }, [isOpen]);
  return { isOpen, setOpen, box };
}
