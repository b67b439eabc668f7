/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Safe points of a Python program: the main thread is between two bytecodes, in no call of a
 * library. The backends of runtimes that may change there only (PyTorch, XGBoost) ask for one.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

/* Is CPython in this process, and initialized? Any thread. */
bool python_is_here(void);

/*
 * … and with a GIL? Without one other threads are anywhere while the main thread is at its safe
 * point. False for a build that may have none (3.13t), also while it has one. Any thread.
 */
bool python_has_gil(void);

/*
 * Runs @fn once, on Python's main thread and with the GIL, as soon as that thread comes to a safe
 * point. Control thread alone. Returns false when it cannot be asked for now: try again later. @fn
 * may run in the child of a fork too, whose queue of calls is a copy.
 */
bool python_call_soon(int (*fn)(void *), void *arg);

/*
 * Something to do once at a safe point, when the program is not at "import @package". @run: the
 * main thread, with the GIL and after python_prepare(); false: not yet, again in a moment.
 */
struct python_errand {
    const char *package;
    bool (*run)(void);
    _Atomic bool asked; /* for a safe point; false in the child of a fork */
    _Atomic bool done;
    unsigned tries;
};

/* Sees to it, unless it is done, or was tried for minutes. Control thread, each tick. */
void python_errand(struct python_errand *e);

/*
 * The process's main thread sleeps in a system call, since an earlier call of this function some
 * time ago: it does not wait for the other threads of a parallel region, but for a lock, a file or
 * a child. Unless a library is in the middle of its work, which calls Python, the thread comes to a
 * safe point before it calls a library again: the interpreter looks at the end of each call.
 * Control thread.
 */
bool python_sleeps_long(void);

/* ---- ctypes ---- */

/*
 * Whoever looks up the function at @real through ctypes, as threadpoolctl does, gets @ours from now
 * on, once python_answer_ctypes() has found ctypes. Control thread; both last as long as the
 * process.
 */
void python_add_answer(const void *real, const void *ours);

/* Looks for ctypes among the loaded objects, until it is found. Control thread. */
void python_answer_ctypes(void);

/* ---- the interpreter's objects ---- */

/*
 * Finds the functions that the following ones need. At a safe point: it takes the loader's lock.
 * Returns false when this interpreter does not have them.
 */
bool python_prepare(void);

/* After python_prepare(). False on a thread without the GIL. */
bool python_has_module(const char *name);

/* The program is at "import @module". With the GIL; keeps Python's pending error. */
bool python_imports(const char *module);

/*
 * In place of a method: calls @original with the same arguments, by python_call(), and returns what
 * that has returned. @args begin with the object. A thread of the program, with the GIL.
 */
typedef void *(*python_method_fn)(void *original, void *const *args, ptrdiff_t n, void *names);
void *python_call(void *original, void *const *args, ptrdiff_t n, void *names);

/*
 * From now on whoever calls the method @name, which is written in C++ with pybind11, of @type in
 * @module calls @method. With the GIL, at a safe point; keeps the error. Lasts as long as the
 * process. Returns false, and changes nothing, where there is no such method. @name is kept.
 */
bool python_replace(const char *module, const char *type, const char *name,
                    python_method_fn method);

/*
 * In place of a function that is written in Python: calls @function with the same arguments, by
 * python_call_function(), and returns what that has returned. Threads of the program, with the GIL.
 */
typedef void *(*python_function_fn)(void *function, void *const *args, size_t n, void *names);
void *python_call_function(void *function, void *const *args, size_t n, void *names);

/*
 * From now on the interpreter calls @ours where it is to call the function @name of @type in
 * @module through its pointer (vectorcall), as it does where an object is called whose __call__ it
 * is. That pointer alone changes: nothing that a program or torch.compile can see. With the GIL, at
 * a safe point; keeps the error. Lasts as long as the process. Returns false, and changes nothing,
 * where there is no such function, or somebody has been there before.
 */
bool python_replace_function(const char *module, const char *type, const char *name,
                             python_function_fn ours);

/* The object @name of @module, kept for good; NULL: there is none. As above. */
void *python_keep(const char *module, const char *name);

/* Whether what @callable returns without arguments is true; -1: it has raised something, which is
 * dropped. With the GIL, after one of the two functions above, and without a pending error. */
int python_ask(void *callable);

/* Copies the text @name of @module; "" when there is none. With the GIL; keeps the error. */
void python_text(const char *module, const char *name, char *to, size_t size);
